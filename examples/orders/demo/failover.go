package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
)

// failover is how long the clients of the killed process waited: from the signal until shipping went on for them.
type failover struct {
	Clients     int // that it had, and that had something to be shipped before its leases lapsed
	Median, Max time.Duration
}

// slack is for what a machine does beside: above a lease and a heartbeat, failover may take so much longer until that is a fault.
const slack = 10 * time.Second

// owners gives, for each client, the process that entered shipping last.
func owners(marks []mark) map[string]incarnation {
	all, highest := map[string]incarnation{}, map[string]uint64{}
	for _, m := range marks {
		if m.Enter && m.Generation >= highest[m.Client] {
			all[m.Client], highest[m.Client] = m.by(), m.Generation
		}
	}
	return all
}

// measure finds out from marks and log how long failover took. A client counts whose last owner before the kill was the process that was killed, and whose
// next order had been placed by the time its lease lapsed; a halted one has no owner.
func measure(e evidence, halted event.Unit) (f failover) {
	at := slices.IndexFunc(e.Marks, func(m mark) bool { return m.Killed })
	if at < 0 {
		return f
	}
	kill := e.Marks[at]
	placed := map[string]time.Time{}
	for _, p := range e.Placed {
		placed[p.Order] = p.Time
	}
	had := owners(e.Marks[:at])
	var took []time.Duration
	for _, m := range e.Marks[at:] {
		if !m.Enter || had[m.Client] != kill.by() || m.Client == halted.Key {
			continue
		}
		delete(had, m.Client) // what comes later is no failover
		if placed[m.Order].Before(kill.Time().Add(ttl)) {
			took = append(took, m.Time().Sub(kill.Time()))
		}
	}
	if len(took) == 0 {
		return f
	}
	slices.Sort(took)
	return failover{len(took), took[len(took)/2], took[len(took)-1]}
}

func (f failover) String() string {
	return fmt.Sprintf("%s ms at the median, %s ms at most", thousands(int(f.Median.Milliseconds())), thousands(int(f.Max.Milliseconds())))
}

func (f failover) faults() []string {
	switch {
	case f.Clients == 0:
		return []string{"no client of the killed process went on, so failover cannot be told"}
	case f.Max > ttl+heartbeat+slack:
		return []string{fmt.Sprintf("failover took %s, much longer than a lease and a heartbeat (%s)", f.Max, ttl+heartbeat)}
	}
	return nil
}
