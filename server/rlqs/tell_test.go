package rlqs

import "testing"

// TestPanicLeavesNoLock has the divider panic where streams are to be told something: others go on.
func TestPanicLeavesNoLock(t *testing.T) {
	s := &Service{} // its divider is nil
	s.mu.Lock()
	panicked := func() (panicked bool) {
		defer func() { panicked = recover() != nil }()
		s.tell()
		return false
	}()
	if !panicked || !s.mu.TryLock() {
		t.Errorf("panicked %v, and the lock is kept", panicked)
	}
}
