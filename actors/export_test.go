package actors

// Waits tells how many units are known to wait for others.
func (r *Runtime) Waits() int {
	r.waits.mu.Lock()
	defer r.waits.mu.Unlock()
	return len(r.waits.mu.by)
}
