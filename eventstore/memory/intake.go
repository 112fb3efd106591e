package memory

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// intake is what was taken in.
type intake struct {
	takes    map[eventstore.SourceRef]*taken
	takenIDs map[takenID]time.Time // when
}

type taken struct {
	eventstore.Taken
	lostAt time.Time
}

type takenID struct{ category, key, id string }

func newIntake() intake {
	return intake{takes: make(map[eventstore.SourceRef]*taken), takenIDs: make(map[takenID]time.Time)}
}

// Taken implements [eventstore.Intake].
func (s *Store) Taken(ctx context.Context, asked []eventstore.TakenAsk) ([]eventstore.Taken, error) {
	found := make([]eventstore.Taken, len(asked))
	err := s.read(ctx, func(d *data) {
		for i := range asked {
			a := &asked[i]
			if t := d.takes[a.SourceRef]; t != nil {
				found[i] = t.Taken
			}
			for _, id := range a.IDs {
				_, known := d.takenIDs[takenID{a.Category, a.Key, id}]
				found[i].Known = append(found[i].Known, known)
			}
		}
	})
	return found, err
}

func (d *data) checkTakes(takes []eventstore.Take) error {
	for i := range takes {
		t := &takes[i]
		var actual uint64
		if now := d.takes[t.SourceRef]; now != nil {
			actual = now.Revision
		}
		if actual != t.Revision {
			return &eventstore.TakenError{Source: t.SourceRef, Expected: t.Revision, Actual: actual}
		}
	}
	return nil
}

func (d *data) applyTakes(takes []eventstore.Take) {
	for i := range takes {
		t := &takes[i]
		now := d.takes[t.SourceRef]
		if now == nil {
			now = new(taken)
			d.takes[t.SourceRef] = now
		}
		now.Place, now.Revision, now.Lost = t.To, t.Revision+1, now.Lost+t.Lost
		if t.Lost > 0 {
			now.lostAt = t.Time
		}
		for _, id := range t.IDs {
			if _, known := d.takenIDs[takenID{t.Category, t.Key, id}]; !known {
				d.takenIDs[takenID{t.Category, t.Key, id}] = t.Time
			}
		}
	}
}

// purgeTaken forgets event ids, up to limit.
func (d *data) purgeTaken(before time.Time, limit int) int {
	purged := 0
	for id, at := range d.takenIDs {
		if purged == limit {
			break
		}
		if at.Before(before) {
			delete(d.takenIDs, id)
			purged++
		}
	}
	return purged
}

// lostEntries tells what was gone before it was taken in.
func (d *data) lostEntries(o *eventstore.CategoryOverview) {
	for ref, t := range d.takes {
		if ref.Category != o.Name || t.Lost == 0 {
			continue
		}
		o.Lost += t.Lost
		if t.lostAt.After(o.LostAt) {
			o.LostAt = t.lostAt
		}
	}
}
