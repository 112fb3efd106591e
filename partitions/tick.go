package partitions

import "time"

// Tick is a reading of the shell's monotonic clock: nanoseconds since a moment of its choice, the same for everything
// that one machine is told. 0 is "no time".
type Tick int64

// Add gives the tick d after t.
func (t Tick) Add(d time.Duration) Tick { return t + Tick(d) }

// String gives the time since the clock's origin, such as "1.5s".
func (t Tick) String() string {
	if t == 0 {
		return "never"
	}
	return time.Duration(t).String()
}
