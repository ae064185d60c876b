package quota_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// TestUtilization logs which fraction of a limit Envoys use, with even, skewed and shifted demand,
// and checks the bound. It takes minutes and needs an idle machine, so it runs only with
// SLUICE_EFFORT=100.
func TestUtilization(t *testing.T) {
	effort.Require(t, effort.All)
	for _, n := range []int{2, 5, 10} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			s := start(t, rules100, n)
			s.awaitShares(t, "al")
			measure := func(name string, wait, length time.Duration) {
				time.Sleep(wait)
				before, from := s.countAdmitted(-1, "al"), time.Now()
				time.Sleep(length)
				t.Logf("%d Envoys, %s: used %.3f", n, name, float64(s.countAdmitted(-1, "al")-before)/100/time.Since(from).Seconds())
			}
			skewed := func(most int) []time.Duration { // 270 requests a second at one Envoy, 30 at the others together
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
			s.runLoad(t, "al", even, func() { measure("even", 12*time.Second, 10*time.Second) })
			s.runLoad(t, "al", skewed(0), func() { measure("skewed 90/10", 12*time.Second, 10*time.Second) })
			s.runLoad(t, "al", skewed(n-1), func() {
				measure("the first 6 s after the load has moved to another Envoy", 0, 6*time.Second)
				measure("the next 6 s", 0, 6*time.Second)
			})
			s.checkBound(t, "al", 100, 10+4*float64(n))
		})
	}
}
