// Package simnet is a network in memory for gossip under test: it loses, delays and doubles packets, cuts nodes off from one another, freezes them and takes their sockets away. It works
// in a bubble of testing/synctest. What it loses comes from a seed; memberlist's own chances do not.
package simnet
