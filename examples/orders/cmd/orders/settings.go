package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// settings are the flags of the program. What is not given as a flag is taken from the environment: --gossip-seeds from ORDERS_GOSSIP_SEEDS.
type settings struct {
	db, redis            string
	node, listen, health string
	drain                time.Duration
	network              network
}

func (s *settings) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.db, "db", database, "SQLite file, which is made when it is not there, or the postgres:// URL of a database")
	f.StringVar(&s.redis, "redis", "", "redis:// URL, for several processes on one PostgreSQL database; none: this process is alone")
	f.StringVar(&s.node, "node", "", "name of this node, the same again after a restart; default orders@host")
	f.StringVar(&s.listen, "listen", "127.0.0.1:8080", "address of the HTTP server")
	f.StringVar(&s.health, "health", "", "address that answers probes, /healthz and /readyz; none: nobody asks")
	f.DurationVar(&s.drain, "drain", 20*time.Second, "how long work in hand may take after SIGTERM")
	names := append([]string{"db", "redis", "node", "listen", "health", "drain"}, s.network.flags(c)...)
	fromEnvironment(c, names)
}

// variable is where in the environment a flag is looked for.
func variable(flag string) string {
	return "ORDERS_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment has a command take flags that it is not given from the environment, and its help say so. A variable that is empty says nothing.
func fromEnvironment(c *cobra.Command, names []string) {
	for _, name := range names {
		f := c.Flags().Lookup(name)
		f.Usage += " ($" + variable(name) + ")"
	}
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		for _, name := range names {
			text := os.Getenv(variable(name))
			if text == "" || c.Flags().Changed(name) {
				continue
			}
			if err := c.Flags().Set(name, text); err != nil {
				return fmt.Errorf("$%s: %w", variable(name), err)
			}
		}
		return nil
	}
}
