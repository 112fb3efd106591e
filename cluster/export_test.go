package cluster

// Names is how the log names members.
var Names = names

// Listed is the broker's list as it was last read.
type Listed = listed

// Pace is that of hand-overs.
type Pace = pace

var (
	NewPace   = newPace
	MostWants = mostWants
)

// Read and Joined are its methods.
var (
	Read   = (*listed).read
	Joined = (*listed).joined
)

const (
	Contenders = contenders
	WideEvery  = wideEvery
)
