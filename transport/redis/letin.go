package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"
)

const seeServer = ": see whether a server runs there and lets this process in, and whether host and port are right"

// notLetIn says of a server that did not answer the first question which one it is, and what to do: whoever reads it has just set the URL.
func (c *Config) notLetIn(addr string, err error) error {
	at := "redis"
	if addr != "" { // Sentinels say where
		at += " " + addr
	}
	return fmt.Errorf("%s: %w%s", at, err, c.whatToDo(err))
}

// whatToDo goes behind the error; "" where nothing is known that that does not say.
func (c *Config) whatToDo(err error) string {
	switch codeOf(err) {
	case "NOAUTH":
		return ": it wants a password: put it into the URL, as in redis://user:password@host:6379 (redis://:password@host:6379 where it has no users), or set Config.Password"
	case "WRONGPASS":
		return ": see whether user and password are those of this server"
	case "NOPERM":
		return ": the account needs +info, and what else the guide lists for it"
	case "LOADING":
		return ": it reads its data, try again"
	case "ERR":
		switch text := err.Error(); {
		case strings.Contains(text, "DB index"):
			return ": the URL names a database that the server does not have; see its setting databases"
		case strings.Contains(text, "max number of clients"):
			return noRoom
		case c.Master != "" && strings.Contains(text, "unknown command"):
			return ": that is no Sentinel: Config.Addrs are those of Sentinels where Master is set, at port 26379 as a rule"
		}
		return ""
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return ": the certificate of the server must be for the host that is named, and signed by who Config.TLS (RootCAs), or the system, trusts"
	}
	switch {
	case c.Master != "" && errors.Is(err, goredis.Nil):
		return ": the Sentinels know no master of that name: see Config.Master"
	case unreached(err):
		return seeServer
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		if c.TLS != nil {
			return seeServer + "; where it has no TLS, the URL is redis://"
		}
		return seeServer
	case isCut(err):
		return ": it closed the connection: see whether it is a Redis, whether it wants TLS (rediss://) or has none (redis://), and whether it has room for more clients (maxclients)"
	}
	return ""
}

const noRoom = ": the server has no room for more clients: set its maxclients higher; a process takes up to Config.PoolSize connections to each server, and a few more"

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// isCut reports whether the other side ended the connection.
func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || strings.Contains(err.Error(), "connection reset by peer")
}
