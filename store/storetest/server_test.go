package storetest

import "testing"

// Two test processes that choose a port at the same time, before either runs its server, choose
// different ones.
func TestPortsAreReserved(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 3 {
		before := port.Load()
		seen[FreeAddress(t)] = true
		port.Store(before) // as in a process with another ID
	}
	if len(seen) != 3 {
		t.Errorf("three choices give the addresses %v, want three", seen)
	}
}
