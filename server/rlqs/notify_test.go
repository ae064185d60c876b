package rlqs

import "testing"

// TestPanicReleasesLock makes the divider panic where streams are to be notified. The service can be locked
// afterwards.
func TestPanicReleasesLock(t *testing.T) {
	s := &Service{} // its divider is nil
	panicked := func() (panicked bool) {
		defer func() { panicked = recover() != nil }()
		s.notify()
		return false
	}()
	if !panicked || !s.mu.TryLock() {
		t.Errorf("panicked %v, and the lock is kept", panicked)
	}
}
