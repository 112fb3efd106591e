package eventstoretest

var (
	lifecycle   []check
	readAll     []check
	lanes       []check
	registry    []check
	unitsOfWork []check
	sqlChecks   []check
)
