package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

var scriptBeat = newScript("beat")

// memberEntry is a member as the hash has it. Fields that a program does not know are those of a newer one.
type memberEntry struct {
	ID       string           `json:"id"`
	Node     string           `json:"node"`
	PID      int              `json:"pid,omitempty"`
	Store    string           `json:"store"`
	Start    event.Generation `json:"start,omitempty"`
	Names    []string         `json:"names,omitempty"`
	Draining bool             `json:"draining,omitempty"`
	Weight   int              `json:"weight,omitempty"`
	Since    time.Time        `json:"since"`
	Address  string           `json:"address,omitempty"`
	Gossip   string           `json:"gossip,omitempty"`
	Version  string           `json:"version,omitempty"`
	Apart    bool             `json:"apart,omitempty"`
	Beats    int64            `json:"beats,omitempty"`
	Wants    []event.Unit     `json:"wants,omitempty"`
}

// Beat implements [transport.Membership]. It also asks whether the broker remembers.
func (t *Transport) Beat(ctx context.Context, m transport.Member, ttl time.Duration) ([]transport.Member, error) {
	c := t.conn.Load()
	if c == nil {
		return nil, errNotConnected
	}
	members, err := c.name(event.NameMembers, m.StoreID)
	if err != nil {
		return nil, err
	}
	entry, err := json.Marshal(memberEntry{
		ID: m.ID, Node: m.Node, PID: m.PID, Store: m.StoreID, Start: m.Start, Names: m.Names, Draining: m.Draining, Weight: m.Weight, Since: m.Since,
		Address: m.Address, Gossip: m.Gossip, Version: m.Version, Apart: m.Apart, Beats: m.Beats, Wants: m.Wants,
	})
	if err != nil {
		return nil, fmt.Errorf("member %s: %w", m.ID, err)
	}
	beat := &call{script: scriptBeat, keys: []string{members}, args: []any{m.ID, max(1, ttl.Milliseconds()), entry}}
	if _, err := c.servers.run(ctx, onWork, beat); err != nil {
		return nil, fmt.Errorf("tell other nodes of this one: %w", err)
	}
	live, ok := list(beat.reply, 0)
	if !ok {
		return nil, oddReply(scriptBeat, beat.reply)
	}
	all := make([]transport.Member, 0, len(live))
	for _, text := range live {
		var e memberEntry
		if raw, _ := text.(string); json.Unmarshal([]byte(raw), &e) == nil && e.ID != "" {
			all = append(all, transport.Member{
				ID: e.ID, Node: e.Node, PID: e.PID, StoreID: e.Store, Start: e.Start, Names: e.Names, Draining: e.Draining, Weight: e.Weight, Since: e.Since,
				Address: e.Address, Gossip: e.Gossip, Version: e.Version, Apart: e.Apart, Beats: e.Beats, Wants: e.Wants,
			})
		}
	}
	slices.SortFunc(all, func(x, y transport.Member) int { return cmp.Compare(x.ID, y.ID) })
	_ = t.checkBirth(ctx) // a Cluster of which one master is away has members all the same; the look in the background tells of it
	return all, nil
}

// Leave implements [transport.Membership].
func (t *Transport) Leave(ctx context.Context, m transport.Member) error {
	c := t.conn.Load()
	if c == nil {
		return errNotConnected
	}
	members, err := c.name(event.NameMembers, m.StoreID)
	if err != nil {
		return err
	}
	if _, err := c.servers.number(ctx, members, "hdel", members, m.ID); err != nil {
		return fmt.Errorf("take this node off the members: %w", err)
	}
	return nil
}
