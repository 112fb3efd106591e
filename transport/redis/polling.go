package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

const (
	sourcesPage = 1000    // keys of the index that one call gives
	newsPage    = 256     // streams that one call asks for news; each that has any gives the body of one entry
	sourceBytes = 1 << 20 // of what entries have, that are read of one stream at once
	scanPage    = 1000    // names that one call looks at
)

var scriptSource = newScript("source")

// Sources implements [transport.Polling].
func (t *Transport) Sources(ctx context.Context, source string, cursor uint64) (keys []string, next uint64, err error) {
	c := t.conn.Load()
	if c == nil {
		return nil, 0, errNotConnected
	}
	index, err := c.name(event.NameIndex, source)
	if err != nil {
		return nil, 0, err
	}
	scan := &call{keys: []string{index}, args: []any{"sscan", index, cursor, "count", sourcesPage}}
	if _, err := c.servers.run(ctx, onWork, scan); err != nil {
		return nil, 0, fmt.Errorf("read index of source %s: %w", source, err)
	}
	page, next, ok := scanned(scan.reply)
	if !ok {
		return nil, 0, fmt.Errorf("read index of source %s: odd reply %v", source, scan.reply)
	}
	for _, key := range page {
		keys = append(keys, key.(string))
	}
	return keys, next, nil
}

// FindSources implements [transport.Polling]. Where a round is on a Cluster is an address and a cursor there; a server that is gone ends it.
func (t *Transport) FindSources(ctx context.Context, source, from string) (string, error) {
	c := t.conn.Load()
	if c == nil {
		return "", errNotConnected
	}
	index, err := c.name(event.NameIndex, source)
	if err != nil {
		return "", err
	}
	servers := c.servers.inOrder()
	addr, cursor, _ := strings.Cut(from, " ")
	at := 0
	for at < len(servers) && from != "" && servers[at].addr != addr {
		at++
	}
	if at == len(servers) {
		return "", nil
	}
	if from == "" {
		cursor = "0"
	}
	fault := func(err error) (string, error) {
		return "", fmt.Errorf("look for streams of source %s: %w", source, permitted(err))
	}
	pattern := globbed(strings.TrimSuffix(index, "__partitions__")) + "*"
	scan := &call{server: servers[at], keys: []string{index}, args: []any{"scan", cursor, "match", pattern, "count", scanPage, "type", "stream"}}
	if _, err := c.servers.run(ctx, onWork, scan); err != nil {
		return fault(err)
	}
	names, next, ok := scanned(scan.reply)
	if !ok {
		return fault(fmt.Errorf("odd reply %v", scan.reply))
	}
	found := []any{"sadd", index}
	for _, text := range names {
		if name, err := c.names.Parse(text.(string)); err == nil && name.Kind == event.NamePartition && name.Owner == source {
			found = append(found, name.Key)
		}
	}
	if len(found) > 2 {
		if _, err := c.servers.number(ctx, index, found...); err != nil {
			return fault(err)
		}
	}
	if next > 0 {
		return servers[at].addr + " " + strconv.FormatUint(next, 10), nil
	}
	if at++; at < len(servers) {
		return servers[at].addr + " 0", nil
	}
	return "", nil
}

// permitted says what an account needs that polls, besides what every application does.
func permitted(err error) error {
	if codeOf(err) == "NOPERM" {
		return fmt.Errorf("%w: to read what other programs write the account needs +scan and +xread as well", err)
	}
	return err
}

// globbed has a pattern match a text as it is.
func globbed(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// News implements [transport.Polling]. On a Cluster it takes one command a stream, sent together.
func (t *Transport) News(ctx context.Context, source string, at []transport.SourceAt) ([]bool, error) {
	c := t.conn.Load()
	if c == nil {
		return nil, errNotConnected
	}
	streams := make([]string, len(at))
	for i := range at {
		var err error
		if streams[i], err = c.names.Build(event.Name{Kind: event.NamePartition, Owner: source, Key: at[i].Key}); err != nil {
			return nil, err
		}
	}
	page := newsPage
	if c.servers.cluster {
		page = 1
	}
	news := make([]bool, len(at))
	if err := c.news(ctx, streams, at, page, news); err != nil {
		return nil, fmt.Errorf("look for news in streams of source %s: %w", source, permitted(err))
	}
	return news, nil
}

func (c *connection) news(ctx context.Context, streams []string, at []transport.SourceAt, page int, news []bool) error {
	var calls []*call
	for from := 0; from < len(streams); from += page {
		upto := min(from+page, len(streams))
		one := &call{keys: streams[from : from+1], args: []any{"xread", "count", 1, "streams"}}
		for _, stream := range streams[from:upto] {
			one.args = append(one.args, stream)
		}
		for _, a := range at[from:upto] {
			id := a.Entry
			if id == "" {
				id = "0-0"
			}
			one.args = append(one.args, id)
		}
		calls = append(calls, one)
	}
	c.servers.runAll(ctx, onWork, calls)
	for n, one := range calls {
		from := n * page
		upto := min(from+page, len(streams))
		switch {
		case errors.Is(one.err, goredis.Nil):
			continue
		case codeOf(one.err) == "WRONGTYPE" && page > 1: // one of them is no stream: ask for each by itself
			if err := c.news(ctx, streams[from:upto], at[from:upto], 1, news[from:upto]); err != nil {
				return err
			}
			continue
		case codeOf(one.err) == "WRONGTYPE":
			news[from] = true
			continue
		case one.err != nil:
			return one.err
		}
		found, ok := list(one.reply, 0)
		if !ok {
			return fmt.Errorf("odd reply %v", one.reply)
		}
		has := make(map[any]bool, len(found))
		for _, of := range found {
			pair, ok := list(of, 2)
			if !ok {
				return fmt.Errorf("odd reply %v", one.reply)
			}
			has[pair[0]] = true
		}
		for i := from; i < upto; i++ {
			news[i] = has[streams[i]]
		}
	}
	return nil
}

// ReadSources implements [transport.Polling].
func (t *Transport) ReadSources(ctx context.Context, source string, at []transport.SourceAt, most int) []transport.SourceRead {
	reads := make([]transport.SourceRead, len(at))
	c := t.conn.Load()
	calls := make([]*call, 0, len(at))
	for i := range at {
		if c == nil {
			reads[i].Err = errNotConnected
			continue
		}
		stream, err := c.names.Build(event.Name{Kind: event.NamePartition, Owner: source, Key: at[i].Key})
		if err != nil {
			reads[i].Err = err
			continue
		}
		calls = append(calls, &call{script: scriptSource, keys: []string{stream}, args: []any{at[i].Entry, most, sourceBytes}})
	}
	if c != nil {
		c.servers.runAll(ctx, onWork, calls)
	}
	for i := range reads {
		if reads[i].Err != nil {
			continue
		}
		one := calls[0]
		calls = calls[1:]
		if reads[i].Err = one.err; one.err == nil {
			reads[i], reads[i].Err = sourceRead(one.reply)
		}
		if err := reads[i].Err; err != nil {
			reads[i] = transport.SourceRead{Err: fmt.Errorf("read stream %s: %w", one.keys[0], err)}
		}
	}
	return reads
}

func sourceRead(reply any) (r transport.SourceRead, err error) {
	answer, ok := list(reply, 5)
	if !ok {
		return r, oddReply(scriptSource, reply)
	}
	last, isID := answer[0].(string)
	length, isLength := integer(answer[1])
	added, isAdded := integer(answer[2])
	entries, isList := list(answer[4], 0)
	if !isID || !isLength || !isAdded || !isList {
		return r, oddReply(scriptSource, reply)
	}
	r = transport.SourceRead{Last: last, Length: uint64(length), Added: uint64(max(added, 0)), More: answer[3] == int64(1)}
	for _, raw := range entries {
		pair, ok := list(raw, 2)
		if !ok {
			return r, oddReply(scriptSource, reply)
		}
		id, isID := pair[0].(string)
		words, ok := list(pair[1], 0)
		if !isID || !ok {
			return r, oddReply(scriptSource, reply)
		}
		e := transport.SourceEntry{ID: id}
		for f := 0; f+1 < len(words); f += 2 {
			name, _ := words[f].(string)
			value, _ := words[f+1].(string)
			e.Fields = append(e.Fields, transport.SourceField{Name: name, Value: value})
		}
		r.Entries = append(r.Entries, e)
	}
	return r, nil
}
