package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

type (
	passOn struct {
		Next   string
		Within time.Duration // 0 = as long as it takes
	}
	passedOn struct{ Node string }
	passing  struct{}
)

var (
	_ = keyhold.Type[passOn]("ring.pass", 1)
	_ = keyhold.Type[passedOn]("ring.passed", 1)
	_ = keyhold.Type[passing]("ring.passing", 1)
)

// A circle that entities of three nodes close at the same moment, over real links. No behavior has a Timeout: it is found by probes, or never.
func TestACircleThatThreeNodesCloseAtOnceIsFound(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var (
		together sync.WaitGroup
		apps     []*keyhold.App
		said     = make(chan error, 3)
		kind     = keyhold.Entity[int]{Kind: "ring"}
	)
	for i := range 3 {
		e := keyhold.Entity[int]{Kind: kind.Kind, Version: 1, Timeout: -1, Fold: keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ passing) int { return n })}}
		e.Commands = keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, _ int, in *passOn) (*passedOn, error) {
			if in.Next == "" {
				return &passedOn{fmt.Sprint("node-", i)}, nil
			}
			together.Done()
			together.Wait()
			ctx, cancel := context.WithCancel(c)
			if in.Within > 0 {
				ctx, cancel = context.WithTimeout(c, in.Within)
			}
			defer cancel()
			_, err := keyhold.Ask[*passedOn](ctx, apps[i], kind.ID(in.Next), &passOn{})
			said <- err
			return &passedOn{}, err
		})}
		apps = append(apps, run(t, onRedis(postgres.Open(db), url, fmt.Sprint("node-", i)), e))
	}
	at := map[string]string{} // an entity of each node
	for i := 0; len(at) < 3; i++ {
		got, err := keyhold.Ask[*passedOn](ctx, apps[0], kind.ID(fmt.Sprint(i)), &passOn{})
		if err != nil {
			t.Fatal(err)
		}
		at[got.Node] = fmt.Sprint(i)
	}
	circle := []string{at["node-0"], at["node-1"], at["node-2"]}
	for _, limit := range []time.Duration{0, 50 * time.Millisecond} {
		together.Add(3)
		began := time.Now()
		for i, id := range circle {
			go keyhold.Ask[*passedOn](ctx, apps[0], kind.ID(id), &passOn{circle[(i+1)%3], limit})
		}
		refused, ended := 0, 0
		for range circle {
			var err error
			select {
			case err = <-said:
			case <-ctx.Done():
				t.Fatal("units are stuck")
			}
			switch {
			case errors.Is(err, actors.ErrAskCycle):
				refused++
			case errors.Is(err, context.DeadlineExceeded):
				ended++
			case err != nil && !strings.Contains(err.Error(), "waiting for this very call"):
				t.Error(err)
			}
		}
		t.Logf("limit %v: %d refused, %d ended, after %v", limit, refused, ended, time.Since(began).Round(time.Millisecond))
		if limit == 0 && (refused != 1 || ended != 0) || limit > 0 && (refused != 0 || ended == 0) {
			t.Errorf("limit %v: %d asks were refused as a circle, and %d ended with their time", limit, refused, ended)
		}
	}
}
