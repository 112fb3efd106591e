// Package gossip implements [transport.Gossip] on hashicorp/memberlist: nodes tell one another of themselves, a few at a time, and notice within seconds who does not answer.
//
// It promises: members of another application are neither heard nor told anything; what goes over the network is sealed with a key, and without one only this machine is listened
// to, unless that is asked for; after a partition the nodes are one list again without a restart, because who was heard of in the last hour is tried again and again; any number of
// handlers is carried (a node says the sum of its list, and the list itself goes once); a socket that died is opened anew; keys are read again from their file when it changes;
// whoever reaches the port writes no more than a few lines of the log a minute; callbacks of memberlist never wait.
//
// It does not promise that everybody agrees at any moment, and it decides nothing: see package cluster.
//
// Reading order: config.go, meta.go (what a node says of itself), roster.go (what was heard), gossip.go, delegate.go, join.go, net.go, keys.go, log.go.
package gossip
