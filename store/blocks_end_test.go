package store

import (
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// At the end, too, a run takes at most an estimated millisecond.
func TestReturnsAtTheEndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
		p := &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 1 << 20, Window: limiter.MaxWindow, SubWindows: limiter.MaxSubWindows}
		r := w.replicas[0]
		for range 600 {
			time.Sleep(time.Millisecond)
			for id := range uint64(200) {
				if id%10 == uint64(time.Now().UnixMilli()%10) {
					r.requestAll(l, chargeOn(1+id, p))
				}
			}
		}
		var most atomic.Int64
		w.host.OnCommand(func(name string, args [][]byte, _ []byte) {
			if name == "EVALSHA" {
				n, _ := strconv.Atoi(string(args[1]))
				most.Store(max(most.Load(), int64(n)))
			}
		})
		r.stop()
		took := time.Duration(most.Load()) * script.CostOf(p, 0)
		if t.Logf("a run for %d counters, estimated %v", most.Load(), took); took > 2*script.MaxRun {
			t.Errorf("a run at the end takes an estimated %v, want at most %v", took, script.MaxRun)
		}
	})
}

// A reset of the current window does not lose the block of the next one.
func TestResetKeepsTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBlockWorld(t, 1, time.Millisecond)
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 3000, Window: time.Second}
		r := w.replicas[0]
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		for end := time.Now().Add(3 * time.Second); time.Until(end) > 20*time.Millisecond; {
			time.Sleep(time.Millisecond)
			r.request(p, 1)
		}
		end := time.Now().Truncate(time.Second).Add(time.Second)
		lost := w.hitsOf(blockLost)
		r.reset(p)
		lost = w.hitsOf(blockLost) - lost
		time.Sleep(time.Until(end.Add(10 * time.Millisecond)))
		if used := r.usedBy(p); used > 0 && r.unused() < used {
			t.Errorf("the next window begins with %d used hits, and %d unused: %d were lost", used, r.unused(), lost)
		}
	})
}
