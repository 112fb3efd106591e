package partitions

const tooManyParked = "too many parked"

// parking reports whether entries of a category are parked, so that what comes after them has to be as well.
func (m *Machine) parking(category string) bool {
	for i := range m.parked {
		if m.parked[i].Category == category {
			return true
		}
	}
	return false
}

// parkedRoom gives how many entries may still be parked.
func (m *Machine) parkedRoom() int {
	room := m.cfg.MaxParked
	for i := range m.parked {
		room -= m.parked[i].Count
	}
	return max(0, room)
}

// parkBehind parks the next entry, and those that follow it at once, because something of their categories is parked.
func (m *Machine) parkBehind() bool {
	room := m.parkedRoom()
	if room == 0 {
		e := &m.entries[0]
		m.settle, m.fate = &Failure{Lane: e.Ref(), Sequence: e.Sequence, EventID: e.ID, EventType: e.Type, Reason: tooManyParked}, fateHalt
		return true
	}
	behind := m.eff.failures[:0]
	for i := range m.entries {
		e := &m.entries[i]
		l := m.laneOf(e.Ref())
		if i == room || l == nil || !m.parking(l.ref.Category) || m.handling(e) == PassOver {
			break
		}
		next := l.at + 1
		if i > 0 && m.entries[i-1].Ref() == l.ref {
			next = m.entries[i-1].Sequence + 1
		}
		if e.Sequence != next {
			break // head deals with it
		}
		behind = append(behind, Failure{Lane: l.ref, Sequence: e.Sequence, EventID: e.ID, EventType: e.Type})
	}
	m.park(behind)
	return false
}

// park makes it durable that as many of the next entries are parked. all is kept until the answer.
func (m *Machine) park(all []Failure) {
	m.asked = callParked
	m.eff.failures = all
	last := &all[len(all)-1]
	m.eff.parked = WriteParked{Generation: m.gen, Parked: all, Untry: m.untry(last.Lane, last.Sequence), Moves: m.moves(m.entries[:len(all)])}
	m.emit(&m.eff.parked)
}

func (m *Machine) writeParkedDone(in WriteParkedDone) {
	all := m.eff.parked.Parked
	switch {
	case in.Outcome == OK:
	case m.settle != nil:
		m.notSettled("park", in.Outcome, in.Err)
		return
	case in.Outcome != Failed:
		m.notCommitted("park", in.Outcome, in.Err)
		return
	default:
		m.trouble("park", in.Outcome, in.Err)
		if m.draining {
			m.again = 0 // the next owner parks them
		}
		return
	}
	m.committed(m.eff.parked.Moves)
	for i := range all {
		m.nowParked(all[i].Lane.Category)
	}
	if m.settle != nil {
		m.noteFailure(NoteParked, m.settle)
		m.settle = nil
		m.settled(m.eff.parked.Untry)
	}
	m.pop(len(all))
	m.idleSince = m.now
}

func (m *Machine) nowParked(category string) {
	for i := range m.parked {
		if m.parked[i].Category == category {
			m.parked[i].Count++
			return
		}
	}
	m.parked = append(m.parked, Parked{Category: category, Count: 1})
}

// unparked notes that a parked entry is through. With the last one of its category parking ends.
func (m *Machine) unparked(a AsideRef) {
	for i := range m.parked {
		p := &m.parked[i]
		if p.Category != a.Lane.Category {
			continue
		}
		if p.Count--; p.Count <= 0 {
			m.parked = append(m.parked[:i], m.parked[i+1:]...)
			m.note(Note{Kind: NoteUnparked, Lane: a.Lane, Sequence: a.Sequence})
		}
		return
	}
}
