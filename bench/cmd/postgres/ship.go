package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/bench/figures"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/transport/redis"
)

type place struct {
	ClientID string `json:"client_id"`
	Number   int64  `json:"number"`
	Filler   []byte `json:"filler"`
}

type accepted struct{}

type placed struct {
	ClientID string `json:"client_id"`
	Number   int64  `json:"number"`
	Filler   []byte `json:"filler"`
}

var (
	_ = keyhold.Type[place]("order.place", 1)
	_ = keyhold.Type[accepted]("order.accepted", 1)
	_ = keyhold.Type[placed]("order.placed", 1)
)

// order is an entity that accepts everything.
var order = keyhold.Entity[int]{
	Kind: "order", Version: 1,
	Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, _ int, in *place) (*accepted, error) {
		c.Emit(placed(*in))
		return &accepted{}, nil
	})},
	Fold: keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ placed) int { return n + 1 })},
}

// shipper writes a row for each order, with its checkpoint.
type shipper struct {
	writes func(event string, number int64)
}

func (s *shipper) placed(ctx keyhold.Context, e placed) error {
	if _, err := ctx.Tx().ExecContext(ctx, `INSERT INTO effects (client, event) VALUES ($1, $2)`, e.ClientID, ctx.Meta().ID); err != nil {
		return err
	}
	s.writes(ctx.Meta().ID, e.Number)
	return nil
}

// shop is an application of one node.
type shop struct {
	app  *keyhold.App
	mu   sync.Mutex
	open map[int64]time.Time // commands whose effect is not there yet
	ids  map[string]int64    // of events that are about to have one
	took []time.Duration
	room chan struct{}
	next atomic.Int64
}

func openShop(ctx context.Context, servers *servers, outstanding int) (*shop, error) {
	url, err := servers.database(ctx)
	if err != nil {
		return nil, err
	}
	s := &shop{open: make(map[int64]time.Time), ids: make(map[string]int64), room: make(chan struct{}, outstanding)}
	if _, err := servers.redis.Do(ctx, "FLUSHALL"); err != nil {
		return nil, err
	}
	s.app = keyhold.New(keyhold.Config{
		Name: "bench", Node: "bench", Logger: quiet, Store: postgres.New(postgres.Config{URL: url, MaxConns: conns, Setup: setup}),
		Transport: redis.New(redis.Config{URL: servers.redis.URL()}), Observer: keyhold.Observer{Applied: s.applied},
	})
	s.app.Register(order, keyhold.Handler[*shipper]{
		Name: "shipping", Categories: []string{"order"}, SequentialBy: "client_id", StartFrom: keyhold.Oldest,
		New: func(string) *shipper { return &shipper{s.writes} }, On: keyhold.Behavior[*shipper]{keyhold.On((*shipper).placed)},
	})
	return s, s.app.Start(ctx)
}

func (s *shop) writes(event string, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[event] = number
}

// applied is told when the effect is committed.
func (s *shop) applied(_ event.Unit, e *event.Envelope) {
	s.mu.Lock()
	number := s.ids[e.ID]
	delete(s.ids, e.ID)
	began, known := s.open[number]
	delete(s.open, number)
	if known {
		s.took = append(s.took, time.Since(began))
	}
	s.mu.Unlock()
	if known {
		<-s.room
	}
}

// command has an order placed, by a new entity for every eight, and returns when that is accepted.
func (s *shop) command(ctx context.Context) error {
	n := s.next.Add(1)
	s.room <- struct{}{}
	s.mu.Lock()
	s.open[n] = time.Now()
	s.mu.Unlock()
	_, err := keyhold.Ask[*accepted](ctx, s.app, order.ID(fmt.Sprintf("o-%d", n/eventsPerStream)),
		&place{ClientID: key(int(n/eventsPerStream) % keys), Number: n, Filler: payload[:130]})
	return err
}

// drain waits for all effects. It looks once in a millisecond: a signal from each effect would be part of what is measured.
func (s *shop) drain() error {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		left := len(s.open)
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		if time.Since(began) > time.Minute {
			return fmt.Errorf("%d effects are missing", left)
		}
	}
}

// ship measures from a command to the effect that a handler commits, over Redis, on one node.
func ship(ctx context.Context, s *settings) error {
	servers, err := serve(ctx, s)
	if err != nil {
		return err
	}
	defer servers.stop()
	var floors, ours []figures.Round
	for range s.rounds {
		url, err := servers.database(ctx)
		if err != nil {
			return err
		}
		f, err := bareShip(ctx, url, s.span)
		if err != nil {
			return err
		}
		o, err := shipAll(ctx, servers, s.span)
		if err != nil {
			return err
		}
		floors, ours = append(floors, f), append(ours, o)
	}
	s.sheet.Add(figures.Floor("bare: the two transactions of a command and its effect", "effects/s", floors))
	all := figures.Compare("command to effect, Redis and PostgreSQL, one node", "effects/s", ">= 0.25", ours, floors)
	s.sheet.Add(all)
	took, err := shipHalf(ctx, servers, s.span, all.Value/2)
	if err != nil {
		return err
	}
	s.sheet.Add(figures.Figure{Name: "command to effect at half of that, p50", Value: figures.Quantile(took, .5), Unit: "ms"})
	s.sheet.Add(figures.Figure{Name: "command to effect at half of that, p99", Value: figures.Quantile(took, .99), Unit: "ms", Reach: "< 100"})
	return nil
}

func shipAll(ctx context.Context, servers *servers, span time.Duration) (_ figures.Round, err error) {
	shop, err := openShop(ctx, servers, 1024)
	if err != nil {
		return figures.Round{}, err
	}
	defer func() { err = errors.Join(err, shop.app.Stop(ctx)) }()
	if _, err := writers(64, time.Second, func(int, int) (int, error) { return 1, shop.command(ctx) }); err != nil { // lanes are made, units are held
		return figures.Round{}, err
	}
	if err := shop.drain(); err != nil {
		return figures.Round{}, err
	}
	before := shop.next.Load()
	began, used := time.Now(), figures.CPU()
	if _, err := writers(256, span, func(int, int) (int, error) { return 1, shop.command(ctx) }); err != nil {
		return figures.Round{}, err
	}
	if err := shop.drain(); err != nil {
		return figures.Round{}, err
	}
	return figures.Timed(int(shop.next.Load()-before), time.Since(began), figures.CPU()-used, 0), nil
}

// shipHalf gives commands at a rate, whether the earlier ones are done or not, and tells how long each took to its effect.
func shipHalf(ctx context.Context, servers *servers, span time.Duration, rate float64) (took []time.Duration, err error) {
	shop, err := openShop(ctx, servers, 100_000)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shop.app.Stop(ctx)) }()
	if _, err := writers(64, time.Second, func(int, int) (int, error) { return 1, shop.command(ctx) }); err != nil {
		return nil, err
	}
	if err := shop.drain(); err != nil {
		return nil, err
	}
	shop.mu.Lock()
	shop.took = nil
	shop.mu.Unlock()
	var group sync.WaitGroup
	var failed atomic.Pointer[error]
	began := time.Now()
	for sent := 0; time.Since(began) < 2*span; time.Sleep(time.Millisecond) { // commands come at a rate, whatever becomes of them
		for ; sent < int(time.Since(began).Seconds()*rate); sent++ {
			group.Go(func() {
				if err := shop.command(ctx); err != nil {
					failed.Store(&err)
				}
			})
		}
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	if err := shop.drain(); err != nil {
		return nil, err
	}
	shop.mu.Lock()
	defer shop.mu.Unlock()
	return shop.took, nil
}

// bareShip makes the two transactions, one after the other, by 16 writers.
func bareShip(ctx context.Context, url string, span time.Duration) (figures.Round, error) {
	b, err := bareOn(ctx, url)
	if err != nil {
		return figures.Round{}, err
	}
	defer b.pool.Close()
	return writers(conns, span, func(w, n int) (int, error) {
		a := unit(w, n)
		lane := b.lanes[w*(keys/conns)+n%(keys/conns)]
		if err := b.transaction(ctx, func(batch *pgx.Batch) { b.queue(batch, a, lane) }); err != nil {
			return 0, err
		}
		return 1, b.transaction(ctx, func(batch *pgx.Batch) {
			batch.Queue(`INSERT INTO effects (client, event) VALUES ($1, $2)`, a.Events[0].Key, a.Events[0].ID)
			batch.Queue(`INSERT INTO keyhold_checkpoints (name, lane, sequence, event_id) VALUES ('shipping', $1, $2, $3)
				ON CONFLICT (name, lane) DO UPDATE SET sequence = excluded.sequence, event_id = excluded.event_id`, lane, int64(n+1), a.Events[0].ID)
		})
	})
}
