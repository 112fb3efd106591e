package partitions

// Doubt is what a machine that goes leaves to the next one of its unit in the same process: the unit was left unclean, and nothing of it has run
// since. The port may have said so once and not say it again.
type Doubt struct {
	based bool
	base  Tried
	aside asideTry
}

// Doubt gives what there is to leave to the next machine of the unit, nil when the unit is above suspicion.
func (m *Machine) Doubt() *Doubt {
	if !m.suspect && !m.untold {
		return nil
	}
	d := &Doubt{base: m.base, based: m.based && m.suspect, aside: m.asideTry}
	d.aside.counted, d.aside.owes = false, d.aside.owes || d.aside.counted
	return d
}

// TakeOn has a machine that was not stepped yet go on where another one left off.
func (m *Machine) TakeOn(d *Doubt) {
	m.suspect, m.based, m.base, m.asideTry = true, d.based, d.base, d.aside
}
