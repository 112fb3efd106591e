package keyhold_test

import (
	"context"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// The node that takes the steps of a job stops, and the other one has been there all the while: the job goes on, and nothing is applied twice.
func TestAJobGoesOnAtAnotherNode(t *testing.T) {
	t.Parallel()
	db, url := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{}).URL()
	n := newNotes()
	n.news = make(chan string, 1000)
	n.refuse("bomb", true)
	h := n.losses()
	h.OnPoison = keyhold.Release
	apps := map[string]*keyhold.App{}
	for _, node := range []string{"first", "second"} {
		app := keyhold.New(onRedis(postgres.Open(db), url, node))
		app.Register(cart, losses, h)
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer stop(t, app)
		apps[node] = app
	}
	const dead = 60
	var all []any
	for range dead {
		all = append(all, itemLost{"ada", "bomb"})
	}
	if err := keyhold.Publish(t.Context(), apps["first"], append(all, itemLost{"ada", "tea"})...); err != nil {
		t.Fatal(err)
	}
	within(t, 30*time.Second, "what comes after the dead letters is applied", n.news)
	n.refuse("bomb", false)
	d := apps["second"].Admin()
	j, err := d.StartJob(t.Context(), admin.JobRequest{Kind: eventstore.JobReplay, Filter: admin.Filter{Handler: "losses"}, Rate: 20, Actor: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range dead {
		within(t, 30*time.Second, "the job goes on", n.news)
		if i == dead/4 { // whichever takes the steps, each of them had them or goes on
			stop(t, apps["first"])
		}
		if i == dead/2 {
			if err := apps["first"].Start(context.Background()); err != nil {
				t.Fatal(err)
			}
			stop(t, apps["second"])
			d = apps["first"].Admin()
		}
	}
	soon(t, "the job is done", func() bool {
		now, err := d.Job(t.Context(), j.ID)
		return err == nil && now.State == eventstore.JobDone
	})
	if got := len(n.of("ada")); got != dead+1 {
		t.Errorf("%d events were applied, want %d", got, dead+1)
	}
}
