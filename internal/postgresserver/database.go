package postgresserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

const role = "keyhold" // a superuser; whoever reaches the port needs no password

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL names a database.
func (s *Server) URL(database string) string { return URL(s.Addr(), database) }

// URL names a database of a server of this package that is reached at addr, through a proxy for example.
func URL(addr, database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, addr, database)
}

// Connect opens a connection through the Unix socket: so it works whatever a test has done to the port.
func (s *Server) Connect(ctx context.Context, database string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, fmt.Sprintf("host=%s port=%d user=%s dbname=%s", s.home.Dir, s.port, role, database))
}

// Exec runs SQL in the database postgres.
func (s *Server) Exec(ctx context.Context, sql string) error {
	c, err := s.Connect(ctx, "postgres")
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, sql)
	return err
}

// Create makes an empty database and gives its name.
func (s *Server) Create(ctx context.Context) (name string, err error) {
	name = "keyhold_" + strings.ToLower(rand.Text())
	return name, s.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0")
}

// Drop ends the sessions of a database and removes it.
func (s *Server) Drop(ctx context.Context, name string) error {
	return s.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

// ready asks whether the server serves; of a standby also whether it follows.
func (s *Server) ready(ctx context.Context) error {
	c, err := s.Connect(ctx, "postgres")
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var standby, follows bool
	if err := c.QueryRow(ctx, `SELECT pg_is_in_recovery(), EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')`).Scan(&standby, &follows); err != nil {
		return err
	}
	if s.options.StandbyOf != nil && !(standby && follows) {
		return errors.New("does not follow its primary yet")
	}
	return nil
}
