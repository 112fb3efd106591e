package redis

import (
	"log/slog"

	"github.com/keyhold/keyhold/cluster/gossip"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/grpc"
)

// Introduce implements [transport.Introducer]: gossip and a node service on free ports that this machine alone reaches. Nodes find one another by the list in Redis.
func (*Transport) Introduce(logger *slog.Logger) (transport.Gossip, transport.Peers, error) {
	return gossip.New(gossip.Config{Preset: gossip.Local, Logger: logger}), grpc.New(grpc.Config{Logger: logger}), nil
}
