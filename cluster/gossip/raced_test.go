//go:build race

package gossip_test

const raced = true
