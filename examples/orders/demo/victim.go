package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// kill kills the process that has most clients, and leaves a mark of it.
func (s *script) kill(context.Context) error {
	marks, err := readMarksFile(marksIn(s.dir))
	if err != nil {
		return err
	}
	clients := map[incarnation]int{}
	for client, who := range owners(marks) {
		if client != s.refused.Client { // nobody has what is halted
			clients[who]++
		}
	}
	p := slices.MaxFunc(s.fleet.running(), func(a, b *process) int { return clients[a.incarnation] - clients[b.incarnation] })
	at := time.Now()
	if err := s.fleet.kill(p); err != nil {
		return err
	}
	s.killed = p.incarnation
	m, err := openMarker(marksIn(s.dir), s.killed)
	if err != nil {
		return err
	}
	if err := errors.Join(m.put(mark{Killed: true, MS: at.UnixMilli()}), m.close()); err != nil {
		return err
	}
	if marks, err = readMarksFile(marksIn(s.dir)); err != nil {
		return err
	}
	s.step("killed process %d with SIGKILL after %s orders", p.pid(), thousands(len(s.answered)))
	if s.processes() > 1 {
		s.screen.note("it was process %d, and shipped for %d of the clients, %d of them at that moment", p.number, clients[s.killed], open(marks, s.killed))
		s.screen.note("its leases end by themselves, after %s at most: then the others take over what it had", ttl)
	} else {
		s.screen.note("%d orders were inside shipping", open(marks, s.killed))
	}
	return nil
}

// spread tells who ships for whom.
func (s *script) spread() error {
	marks, err := readMarksFile(marksIn(s.dir))
	if err != nil {
		return err
	}
	clients := map[int]int{}
	for client, who := range owners(marks) {
		if client != s.refused.Client {
			clients[who.number]++
		}
	}
	var parts []string
	for _, n := range slices.Sorted(maps.Keys(clients)) {
		parts = append(parts, fmt.Sprintf("process %d for %d", n, clients[n]))
	}
	s.screen.note("who shipped last, for each of these %d clients: %s", s.Clients-1, strings.Join(parts, ", "))
	return nil
}

// open counts the events that a process had inside shipping at the end of the marks.
func open(marks []mark, who incarnation) int {
	n := 0
	for _, m := range marks {
		switch {
		case m.by() != who || m.Killed:
		case m.Enter:
			n++
		default:
			n--
		}
	}
	return n
}
