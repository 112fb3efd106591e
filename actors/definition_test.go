package actors_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/storelane"
)

func TestADefinitionDescribesItselfWithoutMakingAnything(t *testing.T) {
	t.Parallel()
	h := ledgers(nothing)
	h.New = func(string) *ledger { t.Error("an instance was made"); return nil }
	a := accounts()
	a.New = func(string) account { t.Error("a state was made"); return account{} }
	entity := actors.Description{
		Name: "account", Kind: eventstore.EntityKind, Categories: []string{"account.commands"}, StartFrom: actors.Oldest, OnPoison: actors.Halt,
		Retry: actors.RetryPolicy{Attempts: 5, Min: 100 * time.Millisecond, Max: 30 * time.Second}, Timeout: 30 * time.Second, StateVersion: 1,
		Types: []actors.TypeUse{
			{Type: reflect.TypeFor[Deposit](), Use: actors.UseCommand}, {Type: reflect.TypeFor[Total](), Use: actors.UseReply},
			{Type: reflect.TypeFor[Withdraw](), Use: actors.UseCommand}, {Type: reflect.TypeFor[Total](), Use: actors.UseReply},
			{Type: reflect.TypeFor[Balance](), Use: actors.UseQuery}, {Type: reflect.TypeFor[Total](), Use: actors.UseReply},
			{Type: reflect.TypeFor[Deposited](), Use: actors.UseEvent}, {Type: reflect.TypeFor[Withdrawn](), Use: actors.UseEvent},
		},
	}
	handler := actors.Description{
		Name: "ledger", Kind: eventstore.EventHandler, Categories: []string{"account"}, SequentialBy: "Client", OnPoison: actors.Halt,
		Retry: entity.Retry, Timeout: entity.Timeout, Types: []actors.TypeUse{{Type: reflect.TypeFor[Deposited](), Use: actors.UseEvent}},
	}
	same := cmp.Comparer(func(a, b reflect.Type) bool { return a == b })
	for d, want := range map[actors.Definition]*actors.Description{&h: &handler, &a: &entity} {
		if diff := cmp.Diff(*want, d.Describe(), same, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".If" }, cmp.Ignore())); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if faults := d.Faults(); len(faults) > 0 {
			t.Errorf("faults: %v", faults)
		}
	}
}

func TestFaultsOfDefinitionsAreAllReportedAndSayWhatToDo(t *testing.T) {
	t.Parallel()
	type hidden struct{ secret int }
	deposit := actors.On(nothing)
	command := func(c actors.Command, s hidden, in *Deposit) (*Total, error) { return nil, nil }
	for name, tt := range map[string]struct {
		d    actors.Definition
		want []string
	}{
		"an empty handler": {
			actors.Handler[*ledger]{},
			[]string{
				`handler "": Name is empty: give it a name`,
				`handler "": Categories is empty: name the categories whose events it handles`,
				`handler "": New is nil: give it a func(key string) *actors_test.ledger`,
				`handler "": On is empty: add a case, such as On(func(b *actors_test.ledger, ctx Context, e YourEvent) error)`,
			},
		},
		"a handler with everything wrong": {
			actors.Handler[*ledger]{
				Name: "a:b", Categories: []string{"x", "x", "y.commands.z:"}, New: func(string) *ledger { return nil }, StartFrom: "yesterday",
				OnPoison: 7, Retry: actors.RetryPolicy{Attempts: -1},
				On: actors.Behavior[*ledger]{
					deposit, {}, actors.On[*ledger, int](func(*ledger, actors.Context, int) error { return nil }),
					actors.On[*ledger, Withdrawn](nil), deposit,
				},
				Modes: map[string]actors.Behavior[*ledger]{
					"":     {deposit},
					"late": {actors.On(func(*ledger, actors.Context, Audited) error { return nil })},
				},
			},
			[]string{
				`handler "a:b": Name: name "a:b" contains ':', which structures the names of streams: use an identifier without it`,
				`handler "a:b": Categories[1]: "x" is there twice`,
				`handler "a:b": Categories[2]: name "y.commands.z:" contains ':', which structures the names of streams: use an identifier without it`,
				`handler "a:b": StartFrom is "yesterday": set Oldest, Now or Since(time)`,
				`handler "a:b": Retry.Attempts is -1: set 1 or more, 0 for the default of 5`,
				`handler "a:b": OnPoison is 7: set Halt, Release or ParkSequence`,
				`handler "a:b": On[1]: the case has no func: make it with OnCommand, OnQuery, OnEvent or On, of a func that is not nil`,
				`handler "a:b": On[2]: int is no struct: use a struct type or a protobuf message`,
				`handler "a:b": On[3]: the case has no func: make it with OnCommand, OnQuery, OnEvent or On, of a func that is not nil`,
				`handler "a:b": On[4]: a second case for actors_test.Deposited: keep one`,
				`handler "a:b": Modes[""]: name the mode; Become("") goes back to On`,
				`handler "a:b": Modes["late"]: actors_test.Audited is not in On: add a case there, it says what the behavior handles`,
			},
		},
		"parking without an order": {
			parking("", -3),
			[]string{
				`handler "ledger": OnPoison is ParkSequence and SequentialBy is empty: parking keeps the order of a key, which nobody asked for here: set SequentialBy, or set OnPoison to Release, which sets aside only what cannot be applied`,
				`handler "ledger": MaxParked is -3: set 1 or more, 0 for the default of 10000`,
			},
		},
		"an empty entity": {
			actors.Entity[account]{},
			[]string{
				`entity "": Kind is empty: give it a name`,
				`entity "": Commands is empty: add a case, such as OnCommand(func(c Command, s actors_test.account, in *YourCommand) (*YourReply, error))`,
				`entity "": Fold is empty: add a case for each event it emits, such as OnEvent(func(s actors_test.account, e YourEvent) actors_test.account)`,
				`entity "": Version is 0: set it to 1 and raise it whenever actors_test.account changes, or set SnapshotEvery to -1`,
			},
		},
		"an entity with everything wrong": {
			actors.Entity[hidden]{
				Kind: "x.commands", Version: 1, Mailbox: -1, Retry: actors.RetryPolicy{Min: time.Hour, Max: time.Minute},
				Commands: actors.Commands[hidden]{actors.OnCommand(command), actors.OnCommand(command)},
				Queries:  actors.Queries[hidden]{actors.OnQuery(func(actors.Query, hidden, *Deposit) (*Total, error) { return nil, nil }), {}},
				Fold:     actors.Fold[hidden]{{}, actors.OnEvent(func(s hidden, e *Deposited) hidden { return s }), actors.OnEvent(func(s hidden, e Deposited) hidden { s.secret++; return s }), actors.OnEvent(func(s hidden, e Deposited) hidden { return s })},
				Modes:    map[string]actors.Commands[hidden]{"m": {actors.OnCommand(func(actors.Command, hidden, *Withdraw) (*Total, error) { return nil, nil })}},
			},
			[]string{
				`entity "x.commands": Kind: name "x.commands" ends in .commands, which is kept for the commands of entity kinds: choose another`,
				`entity "x.commands": actors_test.hidden.secret is not exported: a snapshot would lose it; change it, or set SnapshotEvery to -1`,
				`entity "x.commands": Mailbox is -1: set 1 or more, 0 for the default`,
				`entity "x.commands": Retry.Min is 1h0m0s, above Retry.Max of 1m0s`,
				`entity "x.commands": Commands[1]: a second case for actors_test.Deposit: keep one`,
				`entity "x.commands": Modes["m"]: actors_test.Withdraw is not in Commands: add a case there, it says what the behavior handles`,
				`entity "x.commands": Queries[1]: the case has no func: make it with OnCommand, OnQuery, OnEvent or On, of a func that is not nil`,
				`entity "x.commands": Queries: actors_test.Deposit is in Commands too: a type is either a command or a query`,
				`entity "x.commands": Fold[0]: the case has no func: make it with OnCommand, OnQuery, OnEvent or On, of a func that is not nil`,
				`entity "x.commands": Fold[1]: *actors_test.Deposited is a pointer: take the event by value, as actors_test.Deposited; only protobuf messages are taken by pointer`,
				`entity "x.commands": Fold[3]: a second case for actors_test.Deposited: keep one`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range tt.d.Faults() {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			tt.d.Describe() // must be possible all the same
		})
	}
}

func TestARuntimeRefusesWhatCannotRunAndSaysEverythingAtOnce(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	id, err := store.Start(t.Context(), eventstore.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	registry := types(t)
	good := actors.Config{Store: store, Port: storelane.New(store, id, keys), Codec: registry, Route: route(registry)}
	unnamed := ledgers(nothing)
	unnamed.Name = "other"
	unnamed.On = actors.Behavior[*ledger]{actors.On(func(*ledger, actors.Context, Unnamed) error { return nil })}
	same := accounts()
	same.Kind = "ledger"
	for name, tt := range map[string]struct {
		change func(*actors.Config)
		want   []string
	}{
		"nothing set": {func(c *actors.Config) { *c = actors.Config{Concurrency: -1, IdleAfter: -1, MaxCrashes: -1} },
			[]string{"Store is not set", "Port is not set", "Codec is not set", "Route is not set", "Concurrency is -1", "MaxCrashes is -1", "IdleAfter is -1ns"}},
		"one name for two": {func(c *actors.Config) { c.Definitions = []actors.Definition{ledgers(nothing), same} },
			[]string{`entity "ledger": the name is taken by the handler of that name`}},
		"an event without a wire name": {func(c *actors.Config) { c.Definitions = []actors.Definition{unnamed} },
			[]string{`handler "other": type actors_test.Unnamed has no wire name`}},
		"faults of definitions": {func(c *actors.Config) {
			c.Definitions = []actors.Definition{actors.Handler[*ledger]{Name: "x"}, actors.Entity[account]{Kind: "y"}}
		}, []string{`handler "x": New is nil`, `entity "y": Fold is empty`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			tt.change(&cfg)
			rt, err := actors.NewRuntime(cfg)
			if err == nil || rt != nil {
				t.Fatal("it was taken")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in:\n%v", want, err)
				}
			}
		})
	}
}

// parking is a handler that parks what it cannot apply.
func parking(sequentialBy string, most int) actors.Handler[*ledger] {
	h := ledgers(nothing)
	h.SequentialBy, h.OnPoison, h.MaxParked = sequentialBy, actors.ParkSequence, most
	return h
}

func TestAHandlerThatParksSaysHowMuch(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{0: 10_000, 7: 7} {
		h := parking("Client", most)
		if faults := h.Faults(); len(faults) > 0 {
			t.Errorf("refused: %v", faults)
		}
		if d := h.Describe(); d.MaxParked != want || d.OnPoison.String() != "park sequence" {
			t.Errorf("%s up to %d, want %d", d.OnPoison, d.MaxParked, want)
		}
	}
	h := ledgers(nothing)
	h.MaxParked = 7
	if faults := h.Faults(); len(faults) != 1 || !strings.Contains(faults[0].Error(), "MaxParked is 7 and OnPoison is not ParkSequence") {
		t.Errorf("a handler that halts takes MaxParked: %v", faults)
	}
}

func TestErrorsAreToldApart(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	if err := actors.Poison(cause); !errors.Is(err, actors.ErrPoison) || !errors.Is(err, cause) || err.Error() != "cause" {
		t.Errorf("poison: %v", err)
	}
	if err := actors.Retry(actors.Reject("no")); errors.Is(err, actors.ErrPoison) || !errors.Is(err, actors.ErrRejected) {
		t.Errorf("retry: %v", err)
	}
	if actors.Poison(nil) != nil || actors.Retry(nil) != nil {
		t.Error("nil was made an error")
	}
	for err, want := range map[error]bool{
		cause: false, actors.Reject("no"): false, actors.ErrMailboxFull: true, &actors.AskError{Err: actors.ErrStopping}: true,
		&actors.AskError{Err: actors.ErrStopping, Unknown: true}: false, &actors.AskError{Err: eventstore.ErrUnknownCommit, Unknown: true}: false,
		&actors.AskError{Err: actors.ErrAskInTx}: false,
	} {
		if got := actors.Retryable(err); got != want {
			t.Errorf("retryable %v: %v", err, got)
		}
	}
}

func TestStartTakesATimeApart(t *testing.T) {
	t.Parallel()
	at := time.Date(2024, 2, 29, 12, 0, 0, 5, time.FixedZone("", 3600))
	if got, ok := actors.Since(at).Time(); !ok || !got.Equal(at) {
		t.Errorf("got %v, %v", got, ok)
	}
	for _, s := range []actors.Start{"", actors.Oldest, actors.Now} {
		if _, ok := s.Time(); ok {
			t.Errorf("%q is a time", s)
		}
	}
}

func TestFaultsOfACaseSayWhichOfItsTypesIsMeant(t *testing.T) {
	t.Parallel()
	def := accounts()
	def.Queries = actors.Queries[account]{
		actors.OnQuery(func(actors.Query, account, *int) (*Total, error) { return nil, nil }),
		actors.OnQuery(func(actors.Query, account, *Balance) (*int, error) { return nil, nil }),
	}
	text := errors.Join(def.Faults()...).Error()
	for _, want := range []string{"Queries[0]: what is asked: int is no struct", "Queries[1]: what is answered: int is no struct"} {
		if !strings.Contains(text, want) {
			t.Errorf("the faults do not say %q:\n%s", want, text)
		}
	}
}
