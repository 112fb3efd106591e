package eventstoretest

import (
	"slices"
	"testing"

	"github.com/keyhold/keyhold/eventstore"
)

// Harness is one empty store to test, with what the tests need besides the port.
type Harness struct {
	Store    eventstore.Store    // started; the suite stops it
	Identity eventstore.Identity // what Start gave

	// Reopen makes a store over the same data, not started, as the next process would. Until Store is stopped or has
	// crashed, its Start must find the data owned, unless both are started with Relayed and the store can be shared. nil where data does not
	// outlive Stop: tests of restarts are skipped, and of relays.
	Reopen func() eventstore.Store
	// Postgres: the store's SQL is that of PostgreSQL, where it has any; else it is SQLite's.
	Postgres bool
	// Own begins a transaction of the application's own on the database of Store, by a driver of its own, wrapped for PublishIn. nil where there are none.
	Own func() Own
	// Crash ends Store as kill -9 would: it does nothing more, and its ownership is free. nil: it is stopped instead.
	Crash func()
}

// Own is a transaction of the application's own.
type Own struct {
	eventstore.SQL
	Commit, Rollback func() error
}

// check is one behaviour.
type check struct {
	name string
	run  func(f *fixture)
}

// Run runs the suite. open is called once for each behaviour, each time for an empty store. only
// names the groups to run; none = all.
func Run(t *testing.T, open func(t *testing.T) Harness, only ...string) {
	type group struct {
		name   string
		checks []check
	}
	groups := []group{
		{"Lifecycle", lifecycle},
		{"Streams", streams},
		{"ReadAll", readAll},
		{"Records", records},
		{"Checkpoints", checkpoints},
		{"Units", units},
		{"Halts", halts},
		{"Texts", texts},
		{"Lanes", lanes},
		{"Purge", purges},
		{"Registry", registry},
		{"Tx", unitsOfWork},
		{"SQL", sqlChecks},
		{"Transactions of the application", ownTransactions},
		{"Parked", parkedEvents},
		{"Suspects", suspects},
		{"Tried", attempts},
		{"Unclean", unclean},
		{"Acts on halts", actsOnHalts},
		{"Acts on parked events", actsOnParked},
		{"Acts", auditRows},
		{"Pauses", pauses},
		{"Jobs on dead letters", replays},
		{"Jobs on units", unitJobs},
		{"Jobs", jobActs},
		{"Handlers", handlerActs},
		{"Overview", overviews},
		{"Partitions", partitions},
		{"Unit state", unitStates},
		{"Relays", relays},
		{"Looks", looks},
		{"Passing", passings},
		{"Divergences", append(divergences, adoptions...)},
		{"Relayed starts", relayedStarts},
		{"Lists", listed},
		{"Foreign handlers", foreignHandlers},
		{"Intake", intakes},
		{"Projections", projections},
		{"Projections with SQL", append(projectionSQL, droppingSQL...)},
	}
	for _, name := range only {
		if !slices.ContainsFunc(groups, func(g group) bool { return g.name == name }) {
			t.Fatalf("no group is called %q", name)
		}
	}
	for _, g := range groups {
		if len(only) > 0 && !slices.Contains(only, g.name) {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.checks {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(newFixture(t, open(t)))
				})
			}
		})
	}
}
