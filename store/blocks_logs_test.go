package store

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// A logCaller charges a log of a store at given times, in seconds.
type logCaller struct {
	t *testing.T
	c *redis.Conn
}

func newLogCaller(t *testing.T) *logCaller {
	t.Helper()
	l := make(luahost.Memory)
	go func() { _ = luahost.NewServer().Serve(l) }()
	t.Cleanup(func() { close(l) })
	c, err := redis.Dial(t.Context(), &redis.Server{Network: "tcp", Address: "store:1", DialContext: func(context.Context, string, string) (net.Conn, error) {
		return l.Dial(0), nil
	}}, time.Minute)
	must.OK(t, err)
	t.Cleanup(c.Close)
	return &logCaller{t, c}
}

func (l *logCaller) call(at float64, p *limiter.Policy, hits uint64, refund bool, change func(*script.Call)) (limiter.Decision, limiter.Time) {
	l.t.Helper()
	now := 1_900_000_000_000_000_000 + limiter.Time(at*1e9)
	var run script.Run
	var call script.Call
	b := limiter.Batch{Charges: []limiter.Charge{{Policy: p, Hits: hits, Refund: refund}}}
	call.Encode(now, &b, [][]byte{[]byte("log")}, 0)
	change(&call)
	run.Clear(now)
	run.Add(&call)
	script.DecideScript.Run(l.c, &run)
	must.OK(l.t, run.Err)
	run.Read()
	must.OK(l.t, call.Err)
	b.Stored().Decide(now, call.Found)
	return b.Decisions[0], call.Found[0].Stamp
}

func (l *logCaller) charge(at float64, p *limiter.Policy, hits uint64) limiter.Decision {
	l.t.Helper()
	d, _ := l.call(at, p, hits, false, func(*script.Call) {})
	return d
}

// block charges a block that lasts a second, and returns the time of its hits.
func (l *logCaller) block(at float64, p *limiter.Policy, hits uint64) limiter.Time {
	l.t.Helper()
	d, stamp := l.call(at, p, hits, false, func(c *script.Call) { c.SetBlock(time.Second) })
	if d.Over {
		l.t.Fatalf("a block of %d was denied after %d hits", hits, d.Before)
	}
	return stamp
}

func (l *logCaller) giveBack(at float64, p *limiter.Policy, hits uint64, stamp limiter.Time) {
	l.t.Helper()
	l.call(at, p, hits, true, func(c *script.Call) { c.SetReturn(&limiter.State{Time: stamp}) })
}

func logPolicy(limit uint32, window time.Duration) *limiter.Policy {
	return &limiter.Policy{Algorithm: limiter.SlidingLog, Limit: limit, Window: window}
}

// Hits after a block are decided at their own time, not at that of the block: hits before it still
// count. The hits of the block count until a window after its end.
func TestHitsAfterABlockOfALog(t *testing.T) {
	t.Parallel()
	l, p := newLogCaller(t), logPolicy(10, 16*time.Second)
	l.charge(0, p, 5)
	l.block(15.5, p, 5) // until 16.5
	for _, want := range []struct {
		at     float64
		before uint64
		retry  time.Duration
	}{
		{15.9, 10, 100 * time.Millisecond}, // the hits at 0 count
		{16, 5, 0},
		{32, 6, 0},
		{32.4, 7, 0},
		{32.5, 2, 0},
	} {
		d := l.charge(want.at, p, 1)
		if d.Before != want.before || d.Over != (want.retry > 0) || d.Over && d.RetryAfter != want.retry {
			t.Errorf("at %v: %d hits, over %v, retry after %v, want %d and %v", want.at, d.Before, d.Over, d.RetryAfter, want.before, want.retry)
		}
	}
}

// The store takes back hits of a block only while it has them: otherwise it would take off hits with
// the same time that were used.
func TestReturnedHitsOfALog(t *testing.T) {
	t.Parallel()
	p, smaller, counting := logPolicy(10, 16*time.Second), logPolicy(3, 16*time.Second), logPolicy(3, 16*time.Second)
	counting.CountRefused = true
	for _, tt := range []struct {
		name   string
		before uint64                                 // hits before the block of 4
		change func(l *logCaller, stamp limiter.Time) // after the block, and before 3 of its hits are returned
		want   uint64
	}{
		{"returned", 1, func(*logCaller, limiter.Time) {}, 2},
		{"used hits have the same time", 1, func(l *logCaller, _ limiter.Time) { l.charge(1.5, p, 2) }, 4},
		{"later hits", 1, func(l *logCaller, _ limiter.Time) { l.charge(3, p, 2) }, 4},
		{"no older hit", 0, func(*logCaller, limiter.Time) {}, 4},
		{"replaced by denied hits", 1, func(l *logCaller, _ limiter.Time) { l.charge(1.5, counting, 1) }, 3},
		{"cut to a lower limit", 1, func(l *logCaller, _ limiter.Time) {
			l.call(1.5, smaller, 1, true, func(*script.Call) {})
			l.charge(1.5, smaller, 1)
		}, 3},
		{"reset", 1, func(l *logCaller, _ limiter.Time) {
			l.call(1.5, p, 1, false, func(c *script.Call) { c.SetReset() })
			l.charge(1.5, p, 5)
		}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLogCaller(t)
			if tt.before > 0 {
				l.charge(0, p, tt.before)
			}
			stamp := l.block(1, p, 4)
			tt.change(l, stamp)
			l.giveBack(3, p, 3, stamp)
			if d := l.charge(3, p, 0); d.Before != tt.want {
				t.Errorf("%d hits, want %d", d.Before, tt.want)
			}
		})
	}
}

// Unused hits of a log are returned after a while, after their block has ended, and at shutdown. Then
// the store has exactly the hits that were admitted, and another replica can use the others.
func TestBlocksOfALogAreReturned(t *testing.T) {
	for name, end := range map[string]func(w *blockWorld, p *limiter.Policy){
		"idle": func(*blockWorld, *limiter.Policy) { time.Sleep(400 * time.Millisecond) },
		"end of the block": func(w *blockWorld, _ *limiter.Policy) {
			h := w.replicas[0].store.blocks.counters()[0]
			for i := range h.balances {
				h.balances[i].until.Store(0)
			}
			time.Sleep(2 * sweepBlocks)
		},
		"stop": func(w *blockWorld, _ *limiter.Policy) { w.replicas[0].stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, p := newBlockWorld(t, 2, time.Millisecond), logPolicy(limiter.MaxLog, time.Hour)
				w.fill(p, 20)
				end(w, p)
				var c caller
				peek := oneHit(1, p)
				peek.Hits = 0
				must.OK(t, c.decide(w.replicas[1].store, peek))
				if got, want := int(c.b.Decisions[0].Before), w.total()+w.replicas[0].unused(); got != want || w.hitsOf(blockReturned) == 0 {
					t.Errorf("the store has %d hits, want %d: %d were admitted, and %d returned", got, want, w.total(), w.hitsOf(blockReturned))
				}
				if n := w.hitsOf(blockLost); n > 0 {
					t.Errorf("%d hits were lost", n)
				}
			})
		})
	}
}

// Returned hits of a log do not count in the mirror, by which the fallback decides.
func TestReturnedHitsOfALogInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := newBlockWorldWith(t, 1, time.Millisecond, Local), logPolicy(200, time.Hour)
		r := w.replicas[0]
		w.fill(p, 5)
		time.Sleep(time.Second)
		returned := w.hitsOf(blockReturned)
		w.unreachable.Store(true)
		r.cut()
		synctest.Wait()
		for range 300 {
			r.request(p, 1)
		}
		if got := w.total(); returned == 0 || got != 200 {
			t.Errorf("%d hits admitted, want all 200: %d were returned before", got, returned)
		}
	})
}

// A repeated denial of a log has the retry-after of the store, and ends with it. A denial of other
// hits is not repeated.
func TestRepeatedDenialOfALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := newBlockWorld(t, 1, time.Millisecond), logPolicy(20, 5*time.Second)
		off := p.Clone(nil)
		off.NoBlocks = true
		r, c := w.replicas[0], caller{}
		start := time.Now()
		for range 20 {
			time.Sleep(10 * time.Millisecond)
			must.OK(t, c.decide(r.store, chargeOn(1, p)))
		}
		local := 0
		for time.Since(start) < 5*time.Second {
			must.OK(t, c.decide(r.store, chargeOn(1, &off)))
			if !c.b.Decisions[0].Over {
				break
			}
			if done, err := c.start(r.store, 0, limiter.Charge{ID: chargeOn(1, p).ID, Policy: p, Hits: 2}); done || err != nil {
				t.Fatal("a denial of one hit was repeated for two", err)
			}
			must.OK(t, <-c.decided)
			must.OK(t, c.decide(r.store, chargeOn(1, &off))) // the next ones repeat this
			decided, want := time.Now(), c.b.Decisions[0]
			for range 6 {
				time.Sleep(7 * time.Millisecond)
				done, err := c.start(r.store, 0, chargeOn(1, p))
				if !done {
					err = <-c.decided
				}
				must.OK(t, err)
				if got := c.b.Decisions[0]; done && got.Over {
					local++
					if diff := time.Since(decided) - (want.RetryAfter - got.RetryAfter); diff < -2*w.trip || diff > 2*w.trip {
						t.Fatalf("retry after %v, %v after %v", got.RetryAfter, time.Since(decided), want.RetryAfter)
					}
					if time.Since(decided) > want.RetryAfter {
						t.Fatal("the denial was repeated for too long")
					}
				}
			}
		}
		if t.Log(local, "denials repeated"); local < 100 {
			t.Error("want at least 100")
		}
	})
}

// The remaining hits in replies from blocks are those of the log, except for hits that were decided
// or returned since the block was charged.
func TestRemainingOfALogWithBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := newBlockWorld(t, 1, time.Millisecond), logPolicy(1000, time.Hour)
		local := 0
		for n := range uint64(500) {
			time.Sleep(4 * time.Millisecond)
			c := caller{clock: time.Now}
			done, err := c.start(w.replicas[0].store, 0, oneHit(1, p))
			if must.OK(t, err); !done {
				must.OK(t, <-c.decided)
				continue
			}
			local++
			if d := c.b.Decisions[0]; d.Before > n+w.hitsOf(blockReturned) || d.Before+1 < n || d.Before+d.Remaining != 999 {
				t.Fatalf("hit %d: %d hits before, %d remaining", n, d.Before, d.Remaining)
			}
		}
		if local < 400 {
			t.Errorf("%d of 500 hits from blocks, want at least 400", local)
		}
	})
}

// Blocks of a log last at most a sixteenth of its window.
func TestLifeOfBlocksOfALog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ window, want time.Duration }{{4 * time.Second, time.Second / 4}, {16 * time.Second, time.Second}, {time.Hour, minHold}} {
		h := hotCounter{blocks: &blocks{}, policy: *logPolicy(100, tt.window)}
		if got := h.lifeOfBlock(0); got != tt.want {
			t.Errorf("blocks of a window of %v last %v, want %v", tt.window, got, tt.want)
		}
	}
}

// A log with a short window, or whose denied hits count, has no blocks.
func TestLogsWithoutBlocks(t *testing.T) {
	t.Parallel()
	counting := logPolicy(100, time.Hour)
	counting.CountRefused = true
	for _, tt := range []struct {
		p    *limiter.Policy
		want bool
	}{
		{logPolicy(100, 4*time.Second), true},
		{logPolicy(100, 3*time.Second), false},
		{counting, false},
	} {
		if c := chargeOn(1, tt.p); usesBlocks(&c) != tt.want {
			t.Errorf("%+v: blocks %v, want %v", tt.p, !tt.want, tt.want)
		}
	}
}
