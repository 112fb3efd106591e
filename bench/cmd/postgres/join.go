package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/bench/figures"
)

// joins has a node come while another one has work for every key, and tells how long each key waits that goes over to it, and how soon that is.
func joins(ctx context.Context, s *settings) error {
	servers, err := serve(ctx, s)
	if err != nil {
		return err
	}
	defer servers.stop()
	url, err := servers.database(ctx)
	if err != nil {
		return err
	}
	f := &fleet{
		spec: spec{Name: "publisher", Postgres: url, Redis: servers.redis.URL()}, marks: make(chan mark, 10_000),
		last: make(map[string]mark), ended: make(map[string]mark),
	}
	app := f.spec.app(tasks)
	if err := app.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, app.Stop(ctx)) }()
	stays, err := f.launch("node-a")
	if err != nil {
		return err
	}
	defer func() { stays.end() }()
	var gaps, waits []time.Duration
	for n := range s.rounds {
		g, w, err := f.joined(ctx, app, fmt.Sprint("node-", n))
		if err != nil {
			return err
		}
		gaps, waits = append(gaps, g...), append(waits, w...)
	}
	of := fmt.Sprintf("a node joins (%d keys), ", len(gaps))
	s.sheet.Add(figures.Figure{Name: of + "from the end of the event in hand to the next behavior, p50", Value: figures.Quantile(gaps, .5), Unit: "ms"})
	s.sheet.Add(figures.Figure{Name: of + "from the end of the event in hand to the next behavior, p99", Value: figures.Quantile(gaps, .99), Unit: "ms", Reach: "< 100"})
	s.sheet.Add(figures.Figure{Name: of + "from its start to its first behavior of the key, p99", Value: figures.Quantile(waits, .99), Unit: "ms"})
	return nil
}

// joined has a node come, and go again.
func (f *fleet) joined(ctx context.Context, app *keyhold.App, name string) (gaps, waits []time.Duration, err error) {
	var some []any
	for k := range manyTasks {
		for range 250 {
			some = append(some, done{ClientID: key(k)})
		}
	}
	if err := keyhold.Publish(ctx, app, some...); err != nil {
		return nil, nil, err
	}
	f.pass(2 * time.Second)
	comes, err := f.launch(name)
	if err != nil {
		return nil, nil, err
	}
	defer comes.end()
	began, first := time.Now(), make(map[string]bool)
	late := began.Add(6 * time.Second) // it has asked for everything that it ranks first for by then
	_, _ = f.until(time.Until(late), func(m mark) bool {
		if m.node == name && m.what == "b" && !first[m.key] {
			first[m.key] = true
			if e, known := f.ended[m.key]; known && e.node != name {
				gaps, waits = append(gaps, m.at.Sub(e.at)), append(waits, m.at.Sub(began))
			}
		}
		return time.Now().After(late)
	})
	if len(gaps) == 0 {
		return nil, nil, errors.New("nothing went over to the node that joined")
	}
	if err := comes.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, nil, err
	}
	f.quiet()
	return gaps, waits, nil
}
