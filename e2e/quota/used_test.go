package quota_test

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TestUsed says how much of a limit Envoys use, with demand that is even, skewed and shifted, and holds what they let pass
// against the bound. It takes minutes and a machine of its own: set SLUICE_LONG=1.
func TestUsed(t *testing.T) {
	if os.Getenv("SLUICE_LONG") == "" {
		t.Skip("SLUICE_LONG is not set: how much is used is measured, which takes a machine of its own")
	}
	for _, n := range []int{2, 5, 10} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			s := play(t, hundredASecond, n)
			s.awaitShares(t, "al")
			measure := func(what string, wait, length time.Duration) {
				time.Sleep(wait)
				before, from := s.passed(-1, "al"), time.Now()
				time.Sleep(length)
				t.Logf("%d Envoys, %s: used %.3f", n, what, float64(s.passed(-1, "al")-before)/100/time.Since(from).Seconds())
			}
			skewed := func(most int) []time.Duration { // 270 a second at one, 30 at the others together
				every := make([]time.Duration, n)
				for i := range every {
					every[i] = time.Duration(n-1) * time.Second / 30
				}
				every[most] = time.Second / 270
				return every
			}
			even := make([]time.Duration, n)
			for i := range even {
				even[i] = time.Duration(n) * time.Second / 300
			}
			s.during(t, "al", even, func() { measure("even", 12*time.Second, 10*time.Second) })
			s.during(t, "al", skewed(0), func() { measure("skewed 90/10", 12*time.Second, 10*time.Second) })
			s.during(t, "al", skewed(n-1), func() {
				measure("the first 6 s after the load of one goes to another", 0, 6*time.Second)
				measure("then", 0, 6*time.Second)
			})
			s.hold(t, "al", 100, 10+4*float64(n))
		})
	}
}
