package simulate

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// TestSeveralHotCounters checks that counters do not share state: about the same number of requests on
// a counter wait, whether or not another one is hot.
func TestSeveralHotCounters(t *testing.T) {
	sliding := func(limit uint32) *limiter.Policy {
		p := &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: limit, SubWindows: 2, Window: 4 * time.Second}
		must.OK(t, p.Validate())
		return p
	}
	small, large := sliding(1000), sliding(100_000)
	use := func(both bool) (commands, waits float64) {
		m := newModel(t, 1, 80*time.Millisecond, true)
		start := limiter.Time(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
		decide := func(at limiter.Time, lo uint64, p *limiter.Policy, hits uint64) {
			m.plan.Batch.Reset()
			m.plan.Batch.Charges = append(m.plan.Batch.Charges, limiter.Charge{ID: identity.ID{Hi: lo * 0x9E3779B97F4A7C15, Lo: lo * 0xC2B2AE3D27D4EB4F}, Policy: p, Hits: hits})
			m.decide(at, &m.plan)
		}
		var c, w float64
		for i := range 20_000 { // 1000 requests per second, 200 of them on the small counter
			at := start + limiter.Time(i)*limiter.Time(time.Millisecond)
			if i%5 == 0 {
				before := m.total
				decide(at, 1, small, 1)
				c, w = c+m.total.Commands-before.Commands, w+float64(m.total.Waiting-before.Waiting)
			} else if both {
				decide(at, 2, large, 20)
			}
		}
		return c, w
	}
	_, alone := use(false)
	_, together := use(true)
	t.Logf("alone %v waits, together %v", alone, together)
	if together > 1.5*alone+10 {
		t.Errorf("%v requests wait if another counter is hot, want about the %v of the counter alone", together, alone)
	}
}
