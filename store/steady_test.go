package store

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	steady "github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// A clockWorld is a store whose clock differs from this machine's, in simulated time.
type clockWorld struct {
	*Store

	host *luahost.Server
	step atomic.Int64 // of this machine's wall clock
}

func newClockWorld(t *testing.T, ahead time.Duration) *clockWorld {
	t.Helper()
	w, l, base := &clockWorld{host: luahost.NewServer()}, make(luahost.Memory), time.Now()
	w.host.SetOffset(ahead)
	go func() { _ = w.host.Serve(l) }()
	t.Cleanup(func() { close(l) })
	w.Store = newStore(t, Options{
		Timeout: 10 * time.Second, DialTimeout: 10 * time.Second,
		Steady: steady.FromFunc(func() (limiter.Time, time.Duration) {
			return w.now(), time.Since(base)
		}),
		Server: redis.Server{Network: "tcp", Address: "store:1", DialContext: func(context.Context, string, string) (net.Conn, error) {
			return l.Dial(time.Millisecond), nil
		}},
	})
	return w
}

// now returns the time of this machine's wall clock.
func (w *clockWorld) now() limiter.Time {
	return limiter.Time(time.Now().UnixNano() + w.step.Load())
}

func (w *clockWorld) start(t *testing.T) {
	t.Helper()
	runUntilEnd(t, w.Store)
	if !w.Await(t.Context()) {
		t.Fatal("no connection")
	}
}

// charge charges hits of a request that has just arrived.
func (w *clockWorld) charge(t *testing.T, p *limiter.Policy, hits uint64) limiter.Decision {
	t.Helper()
	c := caller{clock: func() time.Time { return time.Unix(0, int64(w.options.now())) }}
	charge := oneHit(1, p)
	charge.Hits = hits
	must.OK(t, c.decide(w.Store, charge))
	return c.b.Decisions[0]
}

// TestSlowFirstReplies checks the estimate of the store's clock before the first request, after
// replies that were late.
func TestSlowFirstReplies(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, 3 * time.Millisecond, 5 * time.Second, -5 * time.Second} {
		for _, slow := range []int32{0, 1, 2, 3, 20} {
			synctest.Test(t, func(t *testing.T) {
				w := newClockWorld(t, ahead)
				var commands atomic.Int32
				w.host.OnCommand(func(string, [][]byte, []byte) {
					if n := commands.Add(1); n > 2 && n <= 2+slow { // after the handshake
						time.Sleep(600 * time.Millisecond)
					}
				})
				w.start(t)
				most := 3 * time.Millisecond
				switch {
				case ahead == 0:
					most = 0 // the clocks may be equal
				case slow == 20: // all replies
					most = 301 * time.Millisecond
				}
				if off := (w.Offset() - ahead).Abs(); off > most {
					t.Errorf("the store's clock is %v ahead, and %d of its first replies are late: the estimate is wrong by %v", ahead, slow, off)
				}
			})
		}
	}
}

// TestStepOfTheWallClock sets this machine's clock: windows continue by the store's clock at once.
func TestStepOfTheWallClock(t *testing.T) {
	t.Parallel()
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 400, Window: time.Minute}
	for _, ahead := range []time.Duration{0, -5 * time.Second} {
		for _, step := range []time.Duration{3 * time.Hour, -3 * time.Hour, 90 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				w := newClockWorld(t, ahead)
				w.start(t)
				time.Sleep(10 * time.Second)
				w.charge(t, p, 100)
				w.step.Store(int64(step))
				time.Sleep(time.Second)
				for n := range uint64(3) {
					d := w.charge(t, p, 100)
					if d.Before != 100+100*n || d.Over || d.Reset > time.Minute {
						t.Errorf("request %d after a step of %v: %+v, want %d hits before", n, step, d, 100+100*n)
					}
					if w.charge(t, p, 300).RetryAfter > time.Minute {
						t.Errorf("a request after a step of %v is told to retry in more than a window", step)
					}
				}
			})
		}
	}
}
