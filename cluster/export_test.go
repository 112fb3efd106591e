package cluster

// Names is how the log names members.
var Names = names
