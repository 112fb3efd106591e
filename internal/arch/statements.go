package arch

import (
	"fmt"
	"go/ast"
	"slices"
)

// exception allows what a rule forbids, in one file or in all files of a package.
type exception struct {
	where string // path of a file, or of a package's folder
	why   string
}

// starters may start goroutines.
var starters = []exception{
	{"internal/lifecycle", "it owns the goroutines of everybody else"},
	{"eventstore/sqlite/interrupt.go", "a timer, which rest stops, interrupts the connection; it waits for nothing"},
	{"actors/internal/host/slots.go", "the actor library's dispatcher: it counts what it starts, and waits for all of it"},
	{"eventstore/sqlite/guard.go", "a timer that only cancels a context"},
	{"examples/orders/cmd/orders/health.go", "a program of a user, who has no internal/lifecycle: run closes its server, and waits for it"},
}

// sleepers may wait for a time in a test.
var sleepers = []exception{
	{"guarantees/node_test.go", "looks from outside at processes, which send no signals"},
	{"soon_test.go", "looks at what servers that are frozen, and loops in the background, come to; neither sends signals"},
	{"guarantees/marks_test.go", "the processes under test wait at gates that the test shuts and opens; no signal goes from one to the other"},
	{"guarantees/node_control_test.go", "a process under load rests between two deposits"},
	{"guarantees/rebuild_test.go", "faults come at random times"},
	{"guarantees/chaos_test.go", "faults come at random times, and last"},
	{"guarantees/services_test.go", "the same, of two applications"},
	{"guarantees/idle_test.go", "counts what is asked of Redis in a time"},
	{"cluster/gossip/faults_test.go", "lets virtual time pass: every test of it is in a bubble of synctest"},
	{"cluster/gossip/internal/simnet/net.go", "delays what passes: that is what it is for"},
	{"cluster/gossiptest/suite.go", "lets virtual time pass: every check of it is in a bubble of synctest"},
	{"cluster/node_test.go", "lets virtual time pass: every test of it is in a bubble of synctest"},
	{"guarantees/cluster_load_test.go", "publishes at a pace, for processes under load"},
	{"guarantees/cluster_test.go", "faults last for so many leases of processes, which send no signals"},
	{"guarantees/cluster_times_test.go", "has load on processes for a time in which keys go from one to the other"},
	{"guarantees/rolling_test.go", "has load on a fleet of two programs for a time"},
	{"guarantees/rolling_example_test.go", "clients of a shop rest between two orders, as they do"},
	{"internal/proxy/link.go", "delays what passes: that is what it is for"},
	{"internal/child/child_test.go", "looks at what the system says of processes, which send no signals to a test"},
	{"guarantees/parallel_test.go", "behaviors whose work takes time, side by side: the clock on the wall is what is judged"},
	{"docs/guide/first_program_test.go", "follows a page: looks from outside at a program that a newcomer would write, and which sends no signals"},
	{"docs/guide/cluster_test.go", "looks at what nodes have heard of one another, as an operator does; they send no signals to a test"},
	{"guarantees/desk_test.go", "looks from outside at what processes do that are killed meanwhile; they send no signals"},
	{"transport/peertest/network.go", "delays what passes: that is what it is for"},
	{"keyholdtest/kit.go", "lets virtual time pass, and refuses where time is real"},
	{"guarantees/app_test.go", "a process under test looks at what it has written; nobody in it could send a signal that survives the next kill"},
}

// keepers may keep a context in a struct.
var keepers = []exception{
	{"eventstore/sqlite/guard.go", "database/sql asks the rows of a query for the next one without a context"},
	{"internal/lifecycle/group.go", "the context that Go hands to what it starts; Stop cancels it"},
	{"actors/ask.go", "a request in a mailbox carries its caller's context, as in net/http"},
	{"actors/inbox.go", "a request in a mailbox carries its caller's context, as in net/http"},
	{"projection/context.go", "what the context of a behavior is made of"},
	{"actors/attempt.go", "what the context of a behavior is made of"},
	{"actors/running.go", "what calls made between Start and Stop go by; Stop cancels it"},
	{"running.go", "what transactions begun between Start and Stop go by; Stop cancels it"},
	{"eventstore/postgres/connection.go", "a transaction has one context from its begin to its end; nothing in it goes by another"},
	{"eventstore/postgres/door.go", "the context that bounds a whole transaction, as in database/sql"},
	{"eventstore/postgres/query.go", "Stop cancels it, under whatever a reader was given"},
	{"eventstore/postgres/store.go", "what is under way between Start and Stop goes by it; Stop cancels it"},
	{"eventstore/sqlite/visit.go", "a request in a queue carries its caller's context, as in net/http"},
}

// checkGoroutines finds goroutines that production code starts by itself. A test waits for what it starts, and goleak
// sees what it forgot: so tests and kits are free.
func checkGoroutines(m *module, table []row, allowed []exception) []string {
	return m.check(allowed, func(f *file) bool { return !f.test && !isKit(table, f.pkg) }, func(f *file, n ast.Node) string {
		_, isGo := n.(*ast.GoStmt)
		if isGo || f.refersTo(n, "time", "AfterFunc") || isWaitGroupGo(f, n) {
			return "starts a goroutine that nobody stops: use internal/lifecycle"
		}
		return ""
	})
}

// isWaitGroupGo: without types, a call of a method Go counts as the wait group's in a file that mentions sync.WaitGroup.
func isWaitGroupGo(f *file, n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Go" {
		return false
	}
	mentioned := false
	ast.Inspect(f.ast, func(n ast.Node) bool {
		mentioned = mentioned || n != nil && f.refersTo(n, "sync", "WaitGroup")
		return !mentioned
	})
	return mentioned
}

// checkWaiting finds tests that wait for a duration. Inside synctest.Test time is virtual and costs nothing.
func checkWaiting(m *module, table []row, allowed []exception) []string {
	return m.check(allowed, func(f *file) bool { return f.test || isKit(table, f.pkg) }, func(f *file, n ast.Node) string {
		if !f.refersTo(n, "time", "Sleep", "After", "Tick", "NewTimer", "NewTicker") {
			return ""
		}
		return "a test waits for a time: wait for a signal (internal/signal), a channel, or virtual time (testing/synctest)"
	})
}

// checkContexts finds contexts kept in structs of production code: a context belongs to a call.
func checkContexts(m *module, table []row, allowed []exception) []string {
	return m.check(allowed, func(f *file) bool { return !f.test && !isKit(table, f.pkg) }, func(f *file, n ast.Node) string {
		s, ok := n.(*ast.StructType)
		if !ok {
			return ""
		}
		for _, field := range s.Fields.List {
			if f.refersTo(field.Type, "context", "Context") && len(field.Names) > 0 {
				return fmt.Sprintf("field %s keeps a context: hand it on as the first argument", field.Names[0].Name)
			}
		}
		return ""
	})
}

// check walks the files that apply and collects what fault says of their nodes. Exceptions that excepted nothing are faults.
func (m *module) check(allowed []exception, applies func(*file) bool, fault func(*file, ast.Node) string) []string {
	var faults []string
	used := make([]bool, len(allowed))
	for _, f := range m.files {
		if f.generated || !applies(f) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if n == nil || isVirtualTime(f, n) {
				return false
			}
			why := fault(f, n)
			if why == "" {
				return true
			}
			i := slices.IndexFunc(allowed, func(e exception) bool { return e.where == f.path || e.where == f.pkg })
			if i < 0 {
				faults = append(faults, fmt.Sprintf("%s: %s", m.at(n), why))
			} else {
				used[i] = true
			}
			return true
		})
	}
	for i, e := range allowed {
		if !used[i] {
			faults = append(faults, fmt.Sprintf("exception for %s (%s) excepts nothing: remove it", e.where, e.why))
		}
	}
	return faults
}

func isVirtualTime(f *file, n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	return ok && f.refersTo(call.Fun, "testing/synctest", "Test")
}

func isKit(table []row, pkg string) bool {
	r, ok := rowOf(table, pkg)
	return ok && r.kit
}
