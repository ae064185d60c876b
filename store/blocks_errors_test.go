package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// After each error of the store a counter has blocks again.
func TestBlocksAfterErrors(t *testing.T) {
	for name, fail := range map[string]func(w *blockWorld, on bool){
		"OOM": func(w *blockWorld, on bool) {
			w.host.SetWriteError(map[bool]string{true: "OOM command not allowed"}[on])
		},
		"NOPERM": func(w *blockWorld, on bool) {
			w.host.SetWriteError(map[bool]string{true: "NOPERM this user has no permissions"}[on])
		},
		"LOADING": func(w *blockWorld, on bool) { w.host.SetError(map[bool]string{true: "LOADING server is loading"}[on]) },
		"READONLY": func(w *blockWorld, on bool) {
			w.host.SetRole(map[bool]string{true: luahost.Replica, false: luahost.Primary}[on])
		},
		"NOSCRIPT": func(w *blockWorld, _ bool) { w.host.FlushScripts() },
		"foreign": func(w *blockWorld, on bool) {
			for _, key := range w.host.Keys() {
				if on && key != "s1{replicas}" {
					w.host.Do("DEL", key)
					w.host.Do("SET", key, "garbage")
				} else if key != "s1{replicas}" {
					w.host.Do("DEL", key)
				}
			}
		},
		"lost": func(w *blockWorld, on bool) { w.unreachable.Store(on); w.replicas[0].cut() },
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range []*limiter.Policy{
				{Algorithm: limiter.FixedWindow, Limit: 1 << 20, Window: limiter.MaxWindow},
				{Algorithm: limiter.SlidingWindow, Limit: 1 << 20, Window: time.Hour, SubWindows: 10},
				{Algorithm: limiter.TokenBucket, Limit: 1 << 20, Burst: 1 << 20, Window: 4 * time.Second},
			} {
				synctest.Test(t, func(t *testing.T) {
					w, l := newBlockWorld(t, 1, time.Millisecond), newBlockLedger()
					r := w.replicas[0]
					run := func(n int) {
						for range n {
							time.Sleep(2 * time.Millisecond)
							r.requestAll(l, chargeOn(1, p))
						}
					}
					run(500)
					for range min(effort.Times(t, 1), 5) {
						fail(w, true)
						run(150)
						fail(w, false)
						run(500)
						before := w.hitsOf(blockAcquired)
						run(750)
						if w.hitsOf(blockAcquired) == before {
							t.Fatalf("algorithm %d: no blocks", p.Algorithm)
						}
					}
					time.Sleep(4 * time.Second)
					if n := len(r.store.blocks.counters()); n > 0 {
						t.Errorf("algorithm %d: still hot", p.Algorithm)
					}
				})
			}
		})
	}
}
