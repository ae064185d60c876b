package store

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// After the second, exactly one of many callers queries the store.
func TestOneCallerRechecksADenial(t *testing.T) {
	var f deniedCache
	c := oneHit(7, hugeBucket)
	now := limiter.Time(1_900_000_000_999_999_999)
	check := func(after time.Duration, want bool) {
		t.Helper()
		if got := f.isDenied(now+limiter.Time(after), &c); got != want {
			t.Errorf("after %v: isDenied = %v, want %v", after, got, want)
		}
	}
	check(0, false)
	f.mark(now, &c)
	check(0, true)
	check(-time.Millisecond, true)
	check(time.Second-time.Millisecond, true)
	check(time.Second, false)
	for range 3 {
		check(time.Second, true)
	}
	check(time.Second+recheckAfter, false)
	check(time.Second+recheckAfter, true)
	check(time.Hour, false)
	check(-time.Hour, false)
	other := c
	other.ID.Lo ^= 1 << 20
	f.mark(now, &other) // uses the same entry
	check(0, false)
}
