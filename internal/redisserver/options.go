package redisserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Options of a server. The zero value is one that keeps nothing on disk.
type Options struct {
	AOF       bool     // every write is in a file before it is answered: a [Server.Restart] with data has them all
	MaxMemory string   // "20mb"; with noeviction unless Config says otherwise
	Cluster   bool     // a cluster of this one node, which has all slots; it takes 2 s to start
	ReplicaOf *Server  // follows that server, which must outlive it
	ACL       []string // lines of an ACL file: "user app on >secret ~* &* +@all"; the user default stays as it is unless it is named
	TLS       bool     // on its port; Unix sockets are never encrypted
	Listen    string   // one more address to listen on beside 127.0.0.1, at the same port, for all who reach it
	Config    []string // more arguments: "--maxmemory-policy", "allkeys-lru"
}

// arguments of a server that listens at port and keeps its files in dir.
func (o Options) arguments(dir string, port int) ([]string, error) {
	args := []string{"--bind", "127.0.0.1", "--dir", dir, "--unixsocket", filepath.Join(dir, "socket"), "--daemonize", "no",
		"--save", "", "--enable-debug-command", "yes", "--proc-title-template", "{title} {listen-addr}",
		"--repl-diskless-sync-delay", "0"} // or a replica waits 5 s for others that never come
	on := strconv.Itoa(port)
	if o.TLS {
		args = append(args, "--port", "0", "--tls-port", on, "--tls-auth-clients", "no",
			"--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file", filepath.Join(dir, "key.pem"), "--tls-ca-cert-file", filepath.Join(dir, "cert.pem"))
		if o.Cluster || o.ReplicaOf != nil {
			return nil, errors.New("a server with TLS is neither a cluster nor a replica here")
		}
	} else {
		args = append(args, "--port", on)
	}
	if o.Listen != "" {
		args = append(args, "--bind", "127.0.0.1", o.Listen, "--protected-mode", "no")
	}
	if o.AOF {
		args = append(args, "--appendonly", "yes", "--appendfsync", "no") // a killed server has written, what everysec puts off while the disk is busy
	}
	if o.MaxMemory != "" {
		args = append(args, "--maxmemory", o.MaxMemory)
	}
	if o.Cluster {
		if o.ReplicaOf != nil {
			return nil, errors.New("a replica is no cluster here")
		}
		args = append(args, "--cluster-enabled", "yes", "--cluster-config-file", filepath.Join(dir, "nodes.conf"))
	}
	if o.ReplicaOf != nil {
		host, port, _ := strings.Cut(o.ReplicaOf.Addr(), ":")
		args = append(args, "--replicaof", host, port)
	}
	if len(o.ACL) > 0 {
		file := filepath.Join(dir, "users.acl")
		if err := os.WriteFile(file, []byte(strings.Join(o.ACL, "\n")+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("ACL file: %w", err)
		}
		args = append(args, "--aclfile", file)
	}
	return append(args, o.Config...), nil
}
