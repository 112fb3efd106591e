package transport

import "strings"

// Capabilities are what a transport can do.
type Capabilities uint16

const (
	Publish        Capabilities = 1 << iota // takes events from the store to subscribers
	ConsumerGroups                          // each handler has its own place in a stream
	Ack                                     // an event not applied comes again
	Ordering                                // per partition, in commit order
	DeadLetter                              // an event can be set aside for one handler
	Replay                                  // a handler can begin in the past
	Partitioning                            // one stream and one owner per key: what SequentialBy needs
	Inline                                  // delivers before the caller goes on, one event at a time: SequentialBy holds by itself
)

var names = []string{"publish", "consumer groups", "ack", "ordering", "dead letter", "replay", "partitioning", "inline"}

// Has reports whether all of want are there.
func (c Capabilities) Has(want Capabilities) bool { return c&want == want }

func (c Capabilities) String() string {
	var on []string
	for i, n := range names {
		if c&(1<<i) != 0 {
			on = append(on, n)
		}
	}
	return strings.Join(on, ", ")
}
