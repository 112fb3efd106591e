package actors_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
)

type (
	said   struct{ Word string }
	listed struct{ Words []string }
)

// What a behavior emitted it may go on to change: the state is folded from what was stored, as it will be when it is read again.
func TestWhatIsFoldedIsWhatWasStored(t *testing.T) {
	t.Parallel()
	words := []string{"a", "b", "c"}
	for name, emit := range map[string]func(c actors.Command){
		"a value": func(c actors.Command) {
			var e said
			for _, e.Word = range words {
				c.Emit(e)
			}
		},
		"a pointer": func(c actors.Command) {
			e := new(said)
			for _, e.Word = range words {
				c.Emit(e)
			}
		},
		"a value with a slice": func(c actors.Command) {
			e := listed{Words: make([]string, 1)}
			for _, e.Words[0] = range words {
				c.Emit(e)
			}
		},
		"a message": func(c actors.Command) {
			e := new(wrapperspb.StringValue)
			for _, e.Value = range words {
				c.Emit(e)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry, err := codec.NewRegistry([]codec.Declaration{codec.Of[said]("said", 1), codec.Of[listed]("listed", 1)})
			if err != nil {
				t.Fatal(err)
			}
			speaker := actors.Entity[string]{
				Kind: "account", Version: 1,
				Commands: actors.Commands[string]{actors.OnCommand(func(c actors.Command, s string, _ *Deposit) (*Total, error) {
					emit(c)
					return &Total{}, nil
				})},
				Queries: actors.Queries[string]{actors.OnQuery(func(_ actors.Query, s string, _ *Balance) (*said, error) { return &said{Word: s}, nil })},
				Fold: actors.Fold[string]{
					actors.OnEvent(func(s string, e said) string { return s + e.Word }),
					actors.OnEvent(func(s string, e listed) string { return s + strings.Join(e.Words, "") }),
					actors.OnEvent(func(s string, e *wrapperspb.StringValue) string { return s + e.GetValue() }),
				},
			}
			b := setup(t, []actors.Definition{speaker}, func(c *actors.Config) {
				c.Codec = registry
				c.Route = func(_ context.Context, _ event.Stream, v any) (event.Envelope, error) {
					enc, err := registry.Encode(v)
					return event.Envelope{Type: enc.Type, Version: enc.Version, Encoding: enc.Encoding, Data: enc.Data, Category: "words", Key: "k"}, err
				}
			})
			b.deposit(t, "a", 1)
			got, err := actors.Ask[*said](t.Context(), b, ref("a"), &Balance{})
			if err != nil || got.Word != "abc" {
				t.Errorf("the state is %v (%v), want abc", got, err)
			}
		})
	}
}
