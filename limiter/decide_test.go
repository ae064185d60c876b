package limiter_test

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// The edge of a fixed window: 150 at 1:50 and 150 at 2:10 all pass 200 a minute.
func TestFixedWindowEdge(t *testing.T) {
	tab := newTable(t, 4096)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 200, Window: time.Minute}
	b := &limiter.Batch{}
	for _, sec := range []int64{110, 130} {
		for range 150 {
			b.Reset()
			b.Charges = append(b.Charges, limiter.Charge{ID: limiter.ID{Hi: 1 << 40, Lo: 7}, Policy: p, Hits: 1})
			tab.Decide(limiter.Time(sec*1e9), b)
			if b.Refused {
				t.Fatalf("refused at %ds: %+v", sec, b.Decisions[0])
			}
		}
	}
	if d := b.Decisions[0]; d.Before != 149 || d.Remaining != 50 || d.Reset != 50*time.Second {
		t.Errorf("last decision %+v", d)
	}
}
