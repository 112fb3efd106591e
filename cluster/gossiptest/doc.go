// Package gossiptest has the suite that every [transport.Gossip] passes, and one in memory, [Net], for tests of what uses it.
package gossiptest
