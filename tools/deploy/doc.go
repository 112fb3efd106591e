// Package deploy holds the files of deploy/ against one another and against the program that they run, without a cluster and without an engine of containers:
// names of variables, ports, probes, times, selectors, secrets.
package deploy
