package partitions

// Phase is what a unit is doing, for people and metrics. The machine decides by more than this.
type Phase uint8

const (
	PhaseIdle       Phase = iota // nothing is held
	PhaseAcquiring               // the lease is asked for, or will be when a timer fires
	PhaseRecovering              // the store is asked for checkpoints and halt
	PhaseReady                   // owned, nothing to do
	PhaseFetching                // the stream is being read
	PhaseAdvancing               // checkpoints are being acknowledged and the stream read
	PhaseApplying                // an entry is in the behavior, or waits for its turn there
	PhaseServing                 // an ask is in the behavior, or waits for its turn there
	PhaseBackoff                 // something failed and is tried again when a timer fires
	PhaseSettling                // what becomes of an entry is being written: a halt, a dead letter, attempts at it, ...
	PhasePassing                 // checkpoints over entries passed over are being committed
	PhaseDraining                // the unit is being given up
	PhaseHalted                  // an entry cannot be applied, a person decides
	PhasePaused                  // a person paused the unit
	PhaseWaiting                 // an entry waits for a newer binary
)

var phases = [...]string{"idle", "acquiring", "recovering", "ready", "fetching", "advancing", "applying", "serving", "backoff", "settling", "passing", "draining", "halted", "paused", "waiting"}

func (p Phase) String() string { return phases[p] }
