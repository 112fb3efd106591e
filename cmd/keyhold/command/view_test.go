package command

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

const longError = "carrier: POST https://api.carrier.example/v2/quotes: 422 Unprocessable Entity: {\"code\":\"address_unknown\",\"detail\":\"postal code 9999X does not exist in NL\"}"

func ago(d time.Duration) time.Time { return night.Add(-d) }

// screens are views with what an operator meets: many rows, long errors, everything at once, and nothing at all.
func screens() map[string]view {
	halt := &admin.Halt{Handler: "shipping", Key: "client-17", At: place("order", "client-17", 5), Type: "order.placed", Attempts: 5, Reason: "retries exhausted",
		Error: longError, Since: ago(4*time.Minute + 12*time.Second), Generation: 12}
	owner := &admin.Owner{PID: 4711, Node: "orders@host"}
	handlers := []admin.Handler{
		{Name: "clients", Kind: "handler", Categories: []string{"order"}, Running: true, Moved: ago(2 * time.Second), Since: ago(40 * 24 * time.Hour)},
		{Name: "order", Kind: "entity", Categories: []string{"order.commands"}, Running: true, Moved: ago(time.Second), Since: ago(40 * 24 * time.Hour)},
		{Name: "settlement", Kind: "handler", Categories: []string{"payment"}, Running: false, Lag: 1204, Moved: ago(3 * time.Hour), Pause: &admin.Pause{Handler: "settlement", Actor: "ada", Since: ago(3 * time.Hour)}},
		{Name: "shipping", Kind: "handler", Categories: []string{"order", "payment"}, Running: true, Lag: 17, Halted: 2, Parking: 1, Trying: 3, Paused: 1, Dead: eventstore.MaxCount,
			Moved: ago(400 * time.Millisecond), Oldest: ago(4*time.Minute + 12*time.Second), Since: ago(9 * time.Hour)},
	}
	unit := admin.Unit{Handler: "shipping", Key: "client-17", Kind: "handler", State: "halted", Words: "halted for 4 m at order:client-17 #5 (order.placed): retries exhausted after 5 attempts: " + longError,
		Owner: owner, Halt: halt, Dead: 3, Lag: 4, Lanes: []admin.LaneView{
			{Category: "order", Key: "client-17", Tail: 8, Checkpoint: 4, Lag: 4, NextType: "order.placed"},
			{Category: "order", Key: "client-17", Backfill: true, Tail: 2, Checkpoint: 2},
		},
		Waiting: []admin.Event{
			{ID: "0193-5", Type: "order.placed", Version: 1, At: place("order", "client-17", 5), Time: ago(5 * time.Minute), Size: 212},
			{ID: "0193-6", Type: "order.paid", Version: 2, At: place("order", "client-17", 6), Time: ago(3 * time.Minute), Size: 98},
			{ID: "0193-7", At: place("order", "client-17", 7), Time: ago(time.Minute), Void: true},
		},
		Expect: &admin.Expect{Place: halt.At, Since: halt.Since}}
	parked := admin.Unit{Handler: "billing", Key: "client-3", State: "parking", Words: "3 events are parked", Lag: 1,
		Parking:      &admin.Parking{Count: 3, First: admin.Parked{At: place("order", "client-3", 9), Type: "order.paid", Reason: "poison", Error: "no such invoice", Since: ago(26 * time.Hour)}},
		Pause:        &admin.Pause{Handler: "billing", Key: "client-3", Actor: "ada", Reason: "asking finance", Since: ago(25 * time.Hour)},
		HandlerPause: &admin.Pause{Handler: "billing", Actor: "bob", Since: ago(time.Hour)},
		Lanes:        []admin.LaneView{{Category: "order", Key: "client-3", Tail: 12, Checkpoint: 11, Lag: 1, NextType: "order.placed"}}}
	trying := admin.Unit{Handler: "shipping", Key: "client-8", State: "trying", Words: "2 attempts failed, the next is due in 4 s", Lag: 1,
		Tried: &admin.Tried{At: place("order", "client-8", 2), Type: "order.placed", Attempts: 2, Error: "dial tcp: connection refused", Last: ago(3 * time.Second), Again: night.Add(4 * time.Second), Suspicions: 2, CrashedAlone: 1},
		Lanes: []admin.LaneView{{Category: "order", Key: "client-8", Tail: 2, Checkpoint: 1, Lag: 1}}}
	jobs := []admin.Job{
		{ID: 12, Kind: eventstore.JobReplay, Filter: admin.Filter{Handler: "shipping", Type: "order.placed", From: ago(48 * time.Hour)}, State: eventstore.JobRunning, Rate: 10, Total: 1200, Handed: 480, Through: 460, Failed: 12, Waiting: 8,
			Actor: "ada", Reason: "the carrier is back", Began: ago(48 * time.Second), Changed: ago(200 * time.Millisecond), Live: "process 4711 (orders@host)"},
		{ID: 11, Kind: eventstore.JobPurge, Filter: admin.Filter{Handler: "clients"}, State: eventstore.JobDone, Rate: 100, Total: 40, Handed: 40, Through: 40, Actor: "bob", Reason: "read model was rebuilt", Began: ago(26 * time.Hour), Changed: ago(26 * time.Hour)},
		{ID: 10, Kind: eventstore.JobReplay, Filter: admin.Filter{Handler: "shipping"}, State: eventstore.JobDone, Rate: 100, Total: 30, Handed: 30, Through: 21, Failed: 9, Actor: "ada", Began: ago(27 * time.Hour)},
		{ID: 9, Kind: eventstore.JobSkip, Filter: admin.Filter{Handler: "shipping"}, State: eventstore.JobCancelled, Rate: 100, Total: 5, Actor: "ada", Reason: "wrong handler", Began: ago(28 * time.Hour)},
	}
	letters := []admin.DeadLetter{}
	for i := range 12 {
		letters = append(letters, admin.DeadLetter{Handler: "shipping", Key: fmt.Sprintf("client-%d", 3+i*7), At: place("order", fmt.Sprintf("client-%d", 3+i*7), uint64(1+i*i)), Type: []string{"order.placed", "order.cancelled"}[i%2],
			Attempts: 1 + i%5, Reason: []string{"poison", "retries exhausted", "by hand"}[i%3], Error: []string{longError, "no such order", ""}[i%3], Since: ago(time.Duration(i*i*i) * time.Minute)})
	}
	shown := letters[0]
	shown.Words = "3 later events of this key were applied already"
	shown.Event = &admin.Event{ID: "0193-1", Type: "order.placed", Version: 1, At: shown.At, Time: ago(time.Hour), Encoding: "json", Size: 40, Payload: &admin.Payload{JSON: json.RawMessage(`{"client_id":"client-3","cents":4200}`)}}
	partitions := []admin.Partition{}
	for i := range 14 {
		p := admin.Partition{Handler: "shipping", Key: fmt.Sprintf("client-%d", i), Category: "order", Tail: uint64(20 + i), Checkpoint: uint64(20 + i), Status: "done"}
		switch i % 5 {
		case 0:
			p.Status, p.Checkpoint, p.Since, p.Summary = "halted", 4, ago(time.Duration(1+i)*time.Hour), "retries exhausted at #5: "+longError
		case 1:
			p.Status, p.Checkpoint, p.Since, p.Summary = "trying", uint64(18+i), ago(12*time.Second), "2 attempts failed at #"+fmt.Sprint(19+i)
		case 2:
			p.Status, p.Checkpoint = "behind", uint64(10+i)
		case 3:
			p.Backfill, p.Key = true, "a-key-that-is-as-long-as-a-url-because-somebody-took-one-for-an-identifier-"+fmt.Sprint(i)
		}
		p.Lag = p.Tail - p.Checkpoint
		partitions = append(partitions, p)
	}
	events := []admin.Event{
		{ID: "0193-4", Type: "order.placed", Version: 2, At: place("order", "client-17", 4), Time: ago(time.Hour), Entity: "order/o-17", EntityVersion: 1, CorrelationID: "c-1", Encoding: "json", Size: 76,
			Payload: &admin.Payload{JSON: json.RawMessage(`{"order_id":"o-17","client_id":"client-17","cents":4200,"lines":[{"sku":"a","n":2}]}`)}},
		{At: place("order", "client-17", 5), Void: true, Time: ago(30 * time.Minute)},
		{ID: "0193-6", Type: "payment.v1.Received", Version: 1, At: place("payment", "o-17", 1), Time: ago(time.Minute), Encoding: "proto", Size: 12, Payload: &admin.Payload{Base64: "CgRvLTE3EOgg", Why: "the store has no description of payment.v1.Received v1"}},
	}
	acts := []admin.Audit{
		{ID: 31, Kind: eventstore.ActSkip, Handler: "shipping", Key: "client-17", At: ptr(place("order", "client-17", 5)), Actor: "ada", Reason: "the order was cancelled by phone", Detail: "halted at order:client-17 #5 (retries exhausted), passed it", Time: ago(50 * time.Second)},
		{ID: 30, Kind: eventstore.ActStartJob, Handler: "shipping", Job: 12, Actor: "ada", Reason: "the carrier is back", Detail: "replay of 1200 dead letters", Time: ago(time.Hour)},
		{ID: 29, Kind: eventstore.ActPause, Handler: "settlement", Actor: "bob", Detail: "reads no further", Time: ago(30 * time.Hour)},
	}
	return map[string]view{
		"status-degraded": statusView{Status: admin.Status{At: night, Verdict: admin.Degraded, Words: "degraded: 2 keys of shipping are halted, the oldest for 4 m, and 2 more problems", StoreID: "3f2a9c", Generation: 12,
			Owner: owner, OwnerWords: "process 4711 (orders@host) has the store open", OpenJobs: 1, Handlers: handlers,
			Problems: []admin.Problem{
				{Kind: admin.ProblemHalted, Handler: "shipping", Count: 2, Words: "2 keys of shipping are halted, the oldest for 4 m", Command: "keyhold partitions ls --handler shipping --status halted"},
				{Kind: admin.ProblemPaused, Handler: "settlement", Words: "settlement is paused for 3 h by ada; 1204 behind", Command: "keyhold handlers resume settlement"},
				{Kind: admin.ProblemUnclean, Note: true, Words: "the last program did not stop by itself"},
			},
			Categories: []admin.Category{{Name: "order", KeyField: "client_id", Partitions: 48211, Records: 1204331}, {Name: "order.commands", Commands: true, Partitions: 12, Records: 900}, {Name: "price", Buckets: 64, Partitions: 64, Records: 12}}}},
		"status-nodes": statusView{Status: admin.Status{At: night, Verdict: admin.Healthy, Words: "healthy: process 4711 (orders-0) and 1 more have the store open, nothing waits for a person",
			OwnerWords: "process 4711 (orders-0) and 1 more have the store open", StoreID: "3f2a9c", Nodes: []admin.Owner{{PID: 12, Node: "orders-1"}, {PID: 4711, Node: "orders-0"}}, Handlers: handlers[:2]}},
		"status-cluster": statusView{Status: admin.Status{At: night, Verdict: admin.Healthy, Words: "healthy: process 4711 (orders-0) and 3 more have the store open, nothing waits for a person",
			OwnerWords: "process 4711 (orders-0) and 3 more have the store open", StoreID: "3f2a9c", Handlers: handlers[:1],
			Nodes: []admin.Owner{
				{PID: 12, Node: "orders-1", About: &admin.About{ID: "a1b2", Address: "10.0.0.2:7947", Gossip: "10.0.0.2:7946", Version: "1.4.0", Up: ago(3 * time.Hour), Units: 1204, Keys: 2, Seals: "72cd6e84"}},
				{PID: 13, Node: "orders-2", About: &admin.About{ID: "c3d4", Address: "10.0.0.3:7947", Version: "1.4.0\x1b[31m", Up: ago(52 * time.Hour), Units: 7, Draining: true, Since: ago(4 * time.Second)}},
				{PID: 14, Node: "orders-3", Trouble: "redis is out of reach", Since: ago(time.Minute), About: &admin.About{ID: "e5f6", Up: ago(time.Minute), Apart: true, Since: ago(time.Minute)}},
				{PID: 4711, Node: "orders-0"},
			}}},
		"status-healthy": statusView{Status: admin.Status{At: night, Verdict: admin.Healthy, Words: "healthy: all handlers are up to date", OwnerWords: "process 4711 (orders@host) has the store open", StoreID: "3f2a9c", Generation: 1, Handlers: handlers[:2]}},
		"status-lost": statusView{Status: admin.Status{At: night, Verdict: admin.Healthy, Words: "healthy: all handlers are up to date", OwnerWords: "process 4711 (orders@host) has the store open", StoreID: "3f2a9c", Generation: 1, Handlers: handlers[:1],
			Categories: []admin.Category{{Name: "order", KeyField: "client_id", Partitions: 3, Records: 12}, {Name: "till", KeyField: "client_id", Partitions: 48, Records: 1204, Lost: 1203, LostAt: ago(3 * time.Minute)}}}},
		"status-empty":           statusView{Status: admin.Status{At: night, Verdict: admin.Healthy, Words: "healthy: there is nothing to do", OwnerWords: "nobody has the store open", StoreID: "3f2a9c"}},
		"handlers":               handlersView{handlers},
		"partitions":             partitionsView{Page: admin.Page[admin.Partition]{Items: partitions, Next: "WyJwIiwxXQ"}},
		"partitions-none-halted": partitionsView{query: admin.PartitionQuery{Status: "halted"}},
		"partitions-none-like":   partitionsView{query: admin.PartitionQuery{Handler: "shipping"}},
		"partitions-none":        partitionsView{},
		"unit-halted":            unitView{Unit: unit},
		"unit-parking":           unitView{Unit: parked},
		"unit-trying":            unitView{Unit: trying},
		"unit-moved":             unitView{Unit: unit, brief: true},
		"unit-unknown-key":       unitView{Unit: admin.Unit{Handler: "shipping", Key: "client 99", State: "done", Words: "it has never seen an event"}},
		"why": whyView{admin.Explanation{At: night, Category: "order", Key: "client-17", OwnerWords: "process 4711 (orders@host) has the store open", Words: "1 of 2 handlers of order:client-17 is stopped", Units: []admin.WhyUnit{
			{Unit: unit, Because: []string{"halted for 4 m at order:client-17 #5 (order.placed): retries exhausted after 5 attempts: " + longError}, Behind: "3 events wait behind it: order.paid (3 m), void (1 m)",
				Next: []admin.Step{{Command: "keyhold partitions retry shipping client-17", Words: "try the event again, once the cause is mended"}, {Command: "keyhold partitions skip shipping client-17 --reason …", Words: "go on without it, for good"}}},
			{Unit: admin.Unit{Handler: "clients", Key: "client-17", State: "done"}, Because: []string{"everything is applied"}},
		}}},
		"dead":        deadView{Page: admin.Page[admin.DeadLetter]{Items: letters}},
		"dead-none":   deadView{},
		"dead-filter": deadView{query: admin.DeadQuery{Filter: admin.Filter{Handler: "shipping"}}},
		"dead-groups": groupsView{Items: []admin.DeadGroup{{Handler: "shipping", Reason: "retries exhausted", Type: "order.placed", Count: 1204, Oldest: ago(52 * time.Hour), Newest: ago(3 * time.Minute)}, {Handler: "shipping", Reason: "poison", Type: "order.paid", Count: 1, Oldest: ago(time.Hour), Newest: ago(time.Hour)}}, More: true},
		"letter":      letterView{DeadLetter: shown, payload: true},
		"jobs":        jobsView{Page: admin.Page[admin.Job]{Items: jobs}},
		"jobs-none":   jobsView{},
		"jobs-idle":   jobsView{query: admin.JobQuery{Open: true}},
		"job":         jobView{Job: jobs[0]},
		"job-done":    jobView{Job: jobs[2]},
		"job-retried": jobView{Job: admin.Job{ID: 13, Kind: eventstore.JobRetry, Filter: admin.Filter{Handler: "shipping"}, State: eventstore.JobDone, Rate: 100, Total: 2, Handed: 2, Through: 2, Actor: "ada", Began: night, Changed: night}},
		"plan":        planView{admin.JobPlan{Kind: eventstore.JobReplay, Count: 1200, First: letters[:3], Words: "would apply 1200 dead letters of shipping once more, in about 2 m", Warnings: []string{"their keys went on without them: later events were applied already"}}},
		"done":        doneView{admin.ActResult{Audit: acts[0], Assumed: true, Warnings: []string{"3 later events of this key are applied without it"}, TakenUp: "within half a second, by process 4711 (orders@host)"}},
		"preview":     previewView{admin.Preview{Act: "skip shipping/client-17", Words: "passes order:client-17 #5 (order.placed) without applying it, for good", Warnings: []string{"shipping never applies order:client-17 #5"}, Expect: unit.Expect}},
		"events":      eventsView{Page: admin.Page[admin.Event]{Items: events, Next: "WyJhIiwxXQ"}},
		"events-none": eventsView{query: admin.EventQuery{Category: "order", Key: "client-99"}},
		"audit":       auditView{Page: admin.Page[admin.Audit]{Items: acts}},
		"audit-none":  auditView{},
	}
}

func place(category, key string, sequence uint64) admin.Place {
	return admin.Place{Category: category, Key: key, Sequence: sequence, EventID: fmt.Sprintf("0193-%d", sequence)}
}

func ptr[T any](v T) *T { return &v }

// screenAt is a run whose output goes to a terminal of this width, or to none for 0.
func screenAt(output string, width int) *run {
	s := &setting{env: environment{now: func() time.Time { return night }}, output: output}
	s.top = &cobra.Command{Use: "keyhold"}
	return &run{setting: s, command: s.top, screen: terminal{is: width > 0, width: width, height: 50}}
}

// Every screen as a table on a terminal of 120 columns, as -o wide, and as JSON.
func TestScreens(t *testing.T) {
	t.Parallel()
	for name, v := range screens() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all strings.Builder
			for _, output := range []string{asTable, asWide, asJSON} {
				text, err := screenAt(output, 120).render(v)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&all, "== -o %s\n%s", output, text)
			}
			golden(t, "screens/"+name+".txt", all.String())
		})
	}
}

// Tables fit the terminal, down to where nothing more can be given up.
func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"partitions", "dead", "jobs", "audit"} {
		for _, width := range []int{100, 132} {
			text, err := screenAt(asTable, width).render(screens()[name])
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%s at %d columns: a line of %d: %s", name, width, n, line)
				}
			}
		}
	}
}

func TestNodesFitAnOrdinaryTerminal(t *testing.T) {
	t.Parallel()
	v := statusView{Status: admin.Status{At: night, Verdict: admin.Healthy, Nodes: []admin.Owner{
		{PID: 12, Node: "orders-1", About: &admin.About{ID: "01a2326d-e79d-705a-b0b6-485732e434f5", Address: "10.0.0.2:7947", Version: "1.4.0", Up: ago(3 * time.Hour)}},
	}}}
	text, err := screenAt(asTable, 80).render(v)
	if err != nil || !strings.Contains(string(text), " 01a2326d-") {
		t.Fatalf("%v:\n%s", err, text)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "orders-1") && utf8.RuneCountInString(strings.TrimSpace(line)) > 80 {
			t.Errorf("too wide: %s", line)
		}
	}
}
