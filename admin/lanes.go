package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Divergence is a lane of which the broker has an event that the store has not: the store went back in time, as after a restored backup, or a failover
// that lost commits. Nothing of the lane is published until a person decides ([Desk.Adopt]).
type Divergence struct {
	At     Place     `json:"at"`                        // the newest event of the broker
	Stored string    `json:"stored_event_id,omitempty"` // what the store has in its place; "" = nothing
	Since  time.Time `json:"since"`
	Words  string    `json:"words"` // "order:client-17 diverged at #5, for 4 m: ..."
	Next   []Step    `json:"next"`
	// Expect is what [AdoptRequest.Expect] gives, decided on this view.
	Expect *Expect `json:"expect"`
}

// DivergenceQuery selects lanes that diverged. Zero fields select all.
type DivergenceQuery struct {
	Cursor string
	Limit  int // 1 to [MaxLimit]; 0 = [DefaultLimit]
}

// Divergences lists the lanes that diverged, in order of category, key and lane.
func (d *Desk) Divergences(ctx context.Context, q DivergenceQuery) (Page[Divergence], error) {
	var after event.LaneRef
	p, err := page("lanes", q.Limit, q.Cursor, &after)
	if err = d.begin(err); err != nil {
		return Page[Divergence]{}, err
	}
	rows, err := d.store.ListDiverged(ctx, after, p.ask())
	if err != nil {
		return Page[Divergence]{}, err
	}
	return pageOf(p, rows, d.divergence, func(v eventstore.Divergence) any { return v.Lane }), nil
}

func (d *Desk) divergence(v eventstore.Divergence) Divergence {
	out := Divergence{At: placeOf(v.Lane, v.Sequence, v.EventID), Stored: v.StoredEventID, Since: v.Since}
	out.Expect = &Expect{Place: out.At, Since: v.Since}
	has := "nothing there"
	if v.StoredEventID != "" {
		has = "event " + v.StoredEventID + " there"
	}
	out.Words = fmt.Sprintf("%s diverged, for %s: at #%d the broker has event %s, and the store has %s; nothing of this lane is published until a person decides",
		v.Lane, d.since(v.Since), v.Sequence, v.EventID, has)
	out.Next = []Step{
		{Words: "find out why the store went back: a backup that was restored, or a failover without the last commits? Where the lost commits can be had back, restore those first"},
		{Words: "else keep what the broker has, and publish the store's own events behind it", Command: d.cmdLane("adopt", out.At, "--expect", strconv.FormatUint(out.At.Sequence, 10))},
	}
	return out
}

func (d *Desk) cmdLane(verb string, at Place, flags ...string) string {
	if at.Backfill {
		flags = append(flags, "--backfill")
	}
	return d.command("lanes "+verb, append(flags, reasonFlag...), at.Category, at.Key)
}

// AdoptRequest is what a person decides about a lane that diverged.
type AdoptRequest struct {
	Category string  `json:"category"`
	Key      string  `json:"key"`
	Backfill bool    `json:"backfill,omitempty"`
	Expect   *Expect `json:"expect,omitempty"` // what the person saw ([Divergence.Expect]); nil = act on what the desk reads now
	Actor    string  `json:"actor,omitempty"`  // "" = [Options.Actor]
	Reason   string  `json:"reason"`           // required
}

func (r AdoptRequest) lane() event.LaneRef {
	return Place{Category: r.Category, Key: r.Key, Backfill: r.Backfill}.lane()
}

// Adopt ends the divergence of a lane: what the broker has stays, the store's own events above what both have in common are published behind it. It refuses with
// [*UsageError], [*NotFoundError] for a lane that did not diverge, and [*MovedError] for one that diverged at another event.
func (d *Desk) Adopt(ctx context.Context, r AdoptRequest) (ActResult, error) {
	p, now, r, err := d.prepareAdopt(ctx, r)
	if err != nil {
		return ActResult{}, err
	}
	seen := p.Expect.position()
	if seen.EventID == "" { // who names a sequence alone means the event that is there now
		seen.EventID = now.EventID
	}
	owner, err := d.owner(ctx)
	if err != nil {
		return ActResult{}, err
	}
	done, err := d.store.Adopt(ctx, seen, r.Actor, r.Reason)
	switch {
	case errors.Is(err, eventstore.ErrStateMoved):
		v, _ := d.diverged(ctx, r.lane()) // for words alone
		return ActResult{}, d.movedLane(p.Act, v, err)
	case errors.Is(err, eventstore.ErrNotFound):
		return ActResult{}, notDiverged(r.lane())
	case errors.Is(err, eventstore.ErrUnknownCommit):
		return ActResult{}, fmt.Errorf("%s: it may have been done, look whether it was: %w", p.Act, err)
	case err != nil:
		return ActResult{}, fmt.Errorf("%s: %w", p.Act, err)
	}
	d.acted(done)
	return ActResult{Audit: auditOf(done), Assumed: r.Expect == nil, Warnings: p.Warnings, TakenUp: d.takenUp(done.Kind, owner)}, nil
}

// PreviewAdopt says what Adopt would do, and changes nothing. It refuses what Adopt would, as far as can be told.
func (d *Desk) PreviewAdopt(ctx context.Context, r AdoptRequest) (Preview, error) {
	p, _, _, err := d.prepareAdopt(ctx, r)
	return p, err
}

func (d *Desk) prepareAdopt(ctx context.Context, r AdoptRequest) (Preview, eventstore.Divergence, AdoptRequest, error) {
	if r.Actor == "" {
		r.Actor = d.opts.Actor
	}
	p := Preview{Act: "adopt " + r.lane().String()}
	if err := d.begin(usage(r.faults())); err != nil {
		return Preview{}, eventstore.Divergence{}, r, err
	}
	now, err := d.diverged(ctx, r.lane())
	if err != nil {
		return Preview{}, now, r, err
	}
	v := d.divergence(now)
	if p.Expect = r.Expect; p.Expect == nil {
		p.Expect = v.Expect
	}
	if e := p.Expect; e.lane() != now.Lane || !e.is(v.Expect) || e.EventID != "" && e.EventID != now.EventID {
		return Preview{}, now, r, d.movedLane(p.Act, now, nil)
	}
	p.Words = fmt.Sprintf("keeps what the broker has up to #%d, and gives the store's own events above what both have in common sequences above that, so that they are published behind it",
		now.Sequence)
	p.Warnings = []string{
		"events that only the broker has stay lost to the store: handlers apply those of them that the broker still holds, entities never see them",
		"events that were published before the loss, of which the store has lost the note, are published a second time, under the ids that they had",
	}
	return p, now, r, nil
}

// faults are what is wrong with a request, whatever the store holds.
func (r AdoptRequest) faults() (all []string) {
	if r.Category == "" {
		all = append(all, "no category is named: give one")
	}
	if r.Key == "" {
		all = append(all, "no key is named: give one")
	}
	if strings.TrimSpace(r.Reason) == "" {
		all = append(all, "adopt needs a reason: say why")
	}
	if r.Actor == "" {
		all = append(all, "nobody is named who acts: give a name")
	}
	return all
}

// diverged gives the divergence of one lane, a [*NotFoundError] where it has none.
func (d *Desk) diverged(ctx context.Context, lane event.LaneRef) (eventstore.Divergence, error) {
	after := event.LaneRef{Category: lane.Category, Key: lane.Key[:len(lane.Key)-1], Lane: event.Backfill} // comes before the lane, and few before it
	for {
		rows, err := d.store.ListDiverged(ctx, after, DefaultLimit)
		if err != nil {
			return eventstore.Divergence{}, err
		}
		for _, v := range rows {
			if v.Lane == lane {
				return v, nil
			}
			after = v.Lane
		}
		if len(rows) < DefaultLimit || after.Compare(lane) > 0 {
			return eventstore.Divergence{}, notDiverged(lane)
		}
	}
}

func notDiverged(lane event.LaneRef) error {
	return &NotFoundError{What: "divergence", Name: lane.String(), Words: lane.String() + " did not diverge: store and broker agree, as far as is known"}
}

func (d *Desk) movedLane(act string, now eventstore.Divergence, err error) error {
	m := &MovedError{Act: act, Why: "it did not diverge there", err: err}
	if now.Sequence > 0 {
		v := d.divergence(now)
		m.Why, m.Divergence = fmt.Sprintf("it diverged at #%d (event %s) since %s", now.Sequence, now.EventID, now.Since.UTC().Format(time.RFC3339)), &v
	}
	return m
}

// problemOfLanes tells of lanes that diverged.
func (d *Desk) problemOfLanes(ctx context.Context) ([]Problem, error) {
	all, err := d.store.ListDiverged(ctx, event.LaneRef{}, MaxLimit)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	p := Problem{
		Kind: ProblemDiverged, Count: len(all), AtLeast: len(all) == MaxLimit, Oldest: earliest(all, func(v eventstore.Divergence) time.Time { return v.Since }),
		Command: d.command("lanes ls", nil),
	}
	p.Words = fmt.Sprintf("%s diverged: the broker has events that the store has not, and nothing of %s is published", counted(len(all), "lane", "lanes"),
		map[bool]string{true: "it", false: "them"}[len(all) == 1]) + d.forSince(len(all), p.Oldest)
	return []Problem{p}, nil
}

// divergencesOf gives those of the lanes of a key.
func (d *Desk) divergencesOf(ctx context.Context, categories []string, key string) (found []Divergence, err error) {
	for _, category := range categories {
		for _, lane := range []event.Lane{event.Primary, event.Backfill} {
			v, err := d.diverged(ctx, event.LaneRef{Category: category, Key: key, Lane: lane})
			switch {
			case errors.Is(err, eventstore.ErrNotFound):
			case err != nil:
				return nil, err
			default:
				found = append(found, d.divergence(v))
			}
		}
	}
	return found, nil
}
