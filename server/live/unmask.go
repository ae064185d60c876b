package live

import (
	"errors"
	"fmt"
	"time"
)

// MaxUnmask is the longest time for which [Recorder.Unmask] stores values.
const MaxUnmask = time.Hour

// Unmasked is the response of /api/v1/unmask.
type Unmasked struct {
	// Until is the time until which values of denied keys are stored and shown, nil if they are not.
	Until *time.Time `json:"until"`
}

// Unmask stores the values of keys that are denied from now until d later, at most [MaxUnmask]. The
// current time is now, and elapsed is that of a monotonic clock. [Recorder.MaskExpired] then removes
// all of them. A d of 0 removes them at once. It returns an error if the mode is not [Hashed].
func (l *Recorder) Unmask(now time.Time, elapsed, d time.Duration) error {
	switch {
	case l.mode == Off:
		return errors.New("denied keys are not recorded: sluice runs with --top-keys=off")
	case l.mode == HashedOnly:
		return errors.New("values of denied keys must not be shown: sluice runs with --top-keys=hashed-only")
	case l.mode == Clear:
		return errors.New("values of denied keys are always shown: sluice runs with --top-keys=clear")
	case d < 0 || d > MaxUnmask:
		return fmt.Errorf("a duration of %v: must be 0 to %v", d, MaxUnmask)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if d == 0 {
		l.maskLocked()
		return nil
	}
	l.unmasked = unmasked{now.Add(d), elapsed + d}
	l.clear.Store(true)
	return nil
}

// UnmaskedUntil returns the end of Unmask, or the zero time if values are not stored for a time.
func (l *Recorder) UnmaskedUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unmasked.until
}

// MaskExpired removes the values that Unmask has stored if its time is over at the given elapsed
// time. It reports whether it did.
func (l *Recorder) MaskExpired(elapsed time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unmasked.until.IsZero() || elapsed < l.unmasked.end {
		return false
	}
	l.maskLocked()
	return true
}

func (l *Recorder) maskLocked() {
	l.unmasked = unmasked{}
	l.clear.Store(false)
	for d := range l.domainsLocked {
		if s := d.sketch.Load(); s != nil {
			s.removeTexts()
		}
	}
}
