package guarantees

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/transport/grpc"
)

// Tills are entities that everybody asks, whatever node has them. What was put into one is in the log of the store, so what became of each ask can be seen there.

type put struct {
	Ask string `json:"ask"` // its name, of all asks
}

type putBy struct {
	Node string `json:"node"` // that decided
}

type putIn struct {
	Ask string `json:"ask"`
}

const tillCategory = "till"

var (
	_ = keyhold.Type[put]("till.put", 1)
	_ = keyhold.Type[putBy]("till.put_by", 1)
	_ = keyhold.Type[putIn]("till.put_in", 1)
)

var till = keyhold.Entity[int]{Kind: tillCategory}

// tillAt is till as a node runs it.
func tillAt(node string) keyhold.Entity[int] {
	t := till
	t.Version, t.SnapshotEvery = 1, 10
	t.Commands = keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, _ int, in *put) (*putBy, error) {
		c.Emit(putIn{Ask: in.Ask})
		return &putBy{Node: node}, nil
	})}
	t.Fold = keyhold.Fold[int]{keyhold.OnEvent(func(count int, _ putIn) int { return count + 1 })}
	return t
}

// outcome is what became of one attempt of an ask.
type outcome string

const (
	begun    outcome = "begun"    // nothing is known yet
	answered outcome = "answered" // by a node
	refused  outcome = "refused"  // nothing was done, and it may be asked again
	unknown  outcome = "unknown"  // it may have been done
	denied   outcome = "denied"   // for good
	untyped  outcome = "untyped"  // the error is not one of the kind that is promised
)

func outcomeOf(err error) outcome {
	var ask *keyhold.AskError
	switch {
	case err == nil:
		return answered
	case !errors.As(err, &ask):
		return untyped
	case ask.Unknown && !keyhold.Retryable(err):
		return unknown
	case keyhold.Retryable(err):
		return refused
	}
	return denied
}

// attempt is a line of the file of asks: each is there as it begins, and as it ends.
type attempt struct {
	Ask     string
	Attempt int
	By      string // who asked
	WithID  bool   // the ask has a command id, and is made again until it is answered
	Began   time.Time
	Outcome outcome
	Took    time.Duration `json:",omitempty"`
	Node    string        `json:",omitempty"` // that answered
	Error   string        `json:",omitempty"`
}

// asking is how so many tills are asked: each by itself, so that one that cannot be reached keeps nobody from the others, with a pause between two asks.
type asking struct {
	Tills int
	Pause time.Duration
}

// asks is a load of asks. Nobody bounds them from outside: they end by themselves.
type asks struct {
	by      string
	through keyhold.Asker
	file    *os.File
	work    sync.WaitGroup
	ctx     context.Context // of the load, not of an ask
	cancel  context.CancelFunc
}

func newAsks(spec nodeSpec, through keyhold.Asker) (*asks, error) {
	f, err := os.OpenFile(cmp.Or(spec.Asks, os.DevNull), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	a := &asks{by: spec.Name, through: through, file: f}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a, err
}

func (a *asks) start(_ context.Context, l asking) (struct{}, error) {
	life := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := range l.Tills {
		a.work.Go(func() {
			for n := 0; rest(a.ctx, l.Pause) == nil; n++ {
				a.ask(till.ID(fmt.Sprint("till-", i)), fmt.Sprint(a.by, "-", life, "-", i, "-", n), n%2 == 0)
			}
		})
	}
	return struct{}{}, nil
}

// ask asks once, or, with a command id, until there is an answer.
func (a *asks) ask(to keyhold.Ref, name string, withID bool) {
	var opts []keyhold.AskOption
	if withID {
		opts = append(opts, keyhold.CommandID(name))
	}
	for n := 1; ; n++ {
		at := attempt{Ask: name, Attempt: n, By: a.by, WithID: withID, Began: time.Now(), Outcome: begun}
		a.note(at)
		reply, err := keyhold.Ask[*putBy](context.Background(), a.through, to, &put{Ask: name}, opts...)
		at.Outcome, at.Took = outcomeOf(err), time.Since(at.Began)
		if err != nil {
			at.Error = err.Error()
		} else {
			at.Node = reply.Node
		}
		a.note(at)
		if again := at.Outcome == refused || at.Outcome == unknown; !again || !withID || rest(a.ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

func (a *asks) note(at attempt) {
	line, err := json.Marshal(at)
	if err == nil {
		_, err = a.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// stop waits for those that are under way.
func (a *asks) stop(context.Context, struct{}) (struct{}, error) {
	a.cancel()
	a.work.Wait()
	return struct{}{}, nil
}

// edgeMain is the process of a client, which runs nothing of the application.
func edgeMain(spec nodeSpec, l net.Listener) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	client := keyhold.NewClient(keyhold.ClientConfig{Name: "bank", Peers: grpc.New(grpc.Config{Insecure: true, Logger: logger}), Nodes: spec.Edge, TTL: spec.TTL, Logger: logger})
	if err := client.Start(context.Background()); err != nil {
		return err
	}
	a, err := newAsks(spec, client)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	mux := http.NewServeMux()
	serve(mux, "alive", func(context.Context, struct{}) (string, error) { return spec.Name, nil })
	serve(mux, "ask", a.start)
	serve(mux, "unask", a.stop)
	serve(mux, "stop", func(ctx context.Context, _ struct{}) (struct{}, error) {
		err := client.Stop(ctx)
		a.stop(ctx, struct{}{})
		if err == nil {
			close(over)
		}
		return struct{}{}, err
	})
	return serveUntil(l, mux, over)
}

// serveUntil serves a process's control until it is over.
func serveUntil(l net.Listener, h http.Handler, over <-chan struct{}) error {
	server := &http.Server{Handler: h}
	go server.Serve(l) // from now on, which tells that it has started
	<-over
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return server.Shutdown(ctx) // the answer to stop is on its way
}
