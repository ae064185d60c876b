package rlqs

import "testing"

// TestPanicReleasesLock makes the divider panic in notify. The lock is free afterwards.
func TestPanicReleasesLock(t *testing.T) {
	s := &Service{} // without a divider
	panicked := func() (panicked bool) {
		defer func() { panicked = recover() != nil }()
		s.notify()
		return false
	}()
	if !panicked || !s.mu.TryLock() {
		t.Errorf("panicked: %v; want a panic and a free lock", panicked)
	}
}
