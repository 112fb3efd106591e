package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// given reads settings as the program does.
func given(t *testing.T, args ...string) (settings, error) {
	t.Helper()
	var s settings
	c := &cobra.Command{RunE: func(*cobra.Command, []string) error { return nil }, SilenceErrors: true, SilenceUsage: true}
	s.flags(c)
	c.SetArgs(args)
	return s, c.ExecuteContext(t.Context())
}

func TestAFlagComesFromTheEnvironmentUnlessItIsGiven(t *testing.T) {
	t.Setenv("ORDERS_GOSSIP_SEEDS", "a:7946,b:7946")
	t.Setenv("ORDERS_DRAIN", "40s")
	t.Setenv("ORDERS_LISTEN", "") // says nothing
	t.Setenv("ORDERS_NODE", "orders-1")
	s, err := given(t, "--node", "orders-2")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(s.network.seeds, " ") != "a:7946 b:7946" || s.drain != 40*time.Second || s.listen != "127.0.0.1:8080" || s.node != "orders-2" {
		t.Errorf("%+v", s)
	}
	t.Setenv("ORDERS_DRAIN", "soon")
	if _, err := given(t); err == nil || !strings.HasPrefix(err.Error(), "$ORDERS_DRAIN: ") {
		t.Errorf("got %v", err)
	}
}

// Everything can be said in the environment alone, and the help says how.
func TestTheHelpNamesTheVariableOfEachFlag(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := program()
	c.SetArgs([]string{"--help"})
	c.SetOut(&out)
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	_, flags, _ := strings.Cut(out.String(), "\nFlags:\n")
	named := 0
	for _, line := range regexp.MustCompile(`(?m)^ +(?:-h, )?--([a-z-]+).*$`).FindAllStringSubmatch(flags, -1) {
		if line[1] == "help" {
			continue
		}
		named++
		if !strings.Contains(line[0], "($"+variable(line[1])+")") {
			t.Errorf("no variable: %s", line[0])
		}
	}
	if named < 15 {
		t.Errorf("only %d flags were found in\n%s", named, &out)
	}
}

// The command admin finds the store that the shop of the same environment has.
func TestTheOperatorsCommandLooksWhereTheShopIs(t *testing.T) {
	db := filepath.Join(t.TempDir(), "there.db")
	t.Setenv("ORDERS_DB", db)
	t.Setenv("KEYHOLD_DB", "")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := run(ctx, settings{db: db, listen: "127.0.0.1:0", drain: time.Minute}); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	c := program()
	c.SetArgs([]string{"admin", "status"})
	c.SetOut(&out)
	c.SetErr(&errs)
	_ = c.Execute()
	if strings.Contains(out.String()+errs.String(), "orders.db") || !strings.Contains(out.String()+errs.String(), "there.db") {
		t.Errorf("it looks elsewhere:\n%s%s", &out, &errs)
	}
}
