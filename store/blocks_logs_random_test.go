package store

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// A logEvent is hits that were admitted, refunded, or that other replicas may use after a reset.
type logEvent struct {
	at                     time.Time
	hits, refunded, unused int
	reset                  bool
}

// A logLedger verifies a log by what docs/blocks.md promises: no interval of the window has more hits
// than the limit, except for refunds and for unused hits of other replicas at a reset.
type logLedger struct {
	events []logEvent
	policy *limiter.Policy
}

// check returns the worst excess over any interval, and its last hit.
func (l *logLedger) check(refunds time.Duration) (worst int, at time.Time) {
	slices.SortStableFunc(l.events, func(a, b logEvent) int { return a.at.Compare(b.at) })
	for i, last := range l.events {
		if last.hits == 0 {
			continue
		}
		sum, resets := 0, false
		for _, e := range l.events[i+1:] { // decided in the same run
			if e.at.Sub(last.at) > time.Millisecond {
				break
			}
			sum -= e.refunded
			if e.reset {
				resets, sum = true, sum-e.unused
			}
		}
		for k := i; k >= 0; k-- {
			e := l.events[k]
			age := last.at.Sub(e.at)
			if age >= l.policy.Window+refunds {
				break
			}
			sum -= e.refunded
			if e.reset && !resets {
				sum -= e.unused
				resets = true
			}
			if age < l.policy.Window && !resets {
				sum += e.hits
			}
		}
		if excess := sum - int(l.policy.Limit); excess > worst {
			worst, at = excess, last.at
		}
	}
	return worst, at
}

// TestLogsRandom has replicas with blocks of a log, random demand, bursts, refunds, resets, lost
// connections and a second limit that denies. No interval has more hits than the limit, except for
// what docs/blocks.md says of refunds and resets. SLUICE_EFFORT scales the number of seeds.
func TestLogsRandom(t *testing.T) {
	for seed := range uint64(effort.Times(t, 2)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Helper()
				testLogsRandom(t, seed)
			})
		})
	}
}

func testLogsRandom(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 77))
	w := newBlockWorld(t, 2+rng.IntN(3), time.Duration(1+rng.IntN(20))*time.Millisecond)
	p := logPolicy(uint32(30+rng.IntN(800)), time.Duration(4+rng.IntN(4))*time.Second)
	second := chargeOn(2, randomPolicy(rng))
	withRefunds, withResets, faulty, grouped := rng.IntN(2) == 0, rng.IntN(3) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0
	l := &logLedger{policy: p}
	log := chargeOn(1, p)
	var refunds sync.Mutex
	refundRng := rand.New(rand.NewPCG(seed, 78))
	send := func(r *blockReplica, charges ...limiter.Charge) {
		c := &caller{clock: r.store.options.Clock}
		done, err := c.start(r.store, 0, charges...)
		record := func(at time.Time) {
			if err != nil {
				return
			}
			hits := 0
			for i := range charges {
				if d := &c.b.Decisions[i]; charges[i].ID.Lo == 1 && !d.Over && !d.Denied && d.Charged > 0 {
					hits += int(d.Charged)
				}
			}
			if hits == 0 || charges[0].Refund {
				return
			}
			w.mu.Lock()
			l.events = append(l.events, logEvent{at: at, hits: hits})
			w.mu.Unlock()
			refunds.Lock()
			defer refunds.Unlock()
			if withRefunds && refundRng.IntN(3) == 0 {
				wait, other := min(time.Second, time.Duration(refundRng.ExpFloat64()*300)*time.Millisecond), w.replicas[refundRng.IntN(len(w.replicas))]
				back := 1 + refundRng.IntN(hits)
				go func() {
					time.Sleep(wait)
					f := log
					f.Refund, f.Hits = true, uint64(back)
					var c caller
					_ = c.decide(other.store, f)
					w.mu.Lock()
					l.events = append(l.events, logEvent{at: time.Now().Add(-w.trip), refunded: back})
					w.mu.Unlock()
				}()
			}
		}
		if done {
			record(time.Now())
			return
		}
		go func() {
			err = <-c.decided
			record(time.Now().Add(-w.trip))
		}()
	}
	demand := (0.5 + 3*rng.Float64()) * float64(p.Limit) / p.Window.Seconds()
	favourite, nextFault, nextReset := 0, time.Now().Add(time.Second), time.Now().Add(3*time.Second)
	for start := time.Now(); time.Since(start) < 16*time.Second; {
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / demand))
		synctest.Wait()
		switch rng.IntN(int(demand) + 1) {
		case 0:
			favourite = rng.IntN(len(w.replicas))
		case 1:
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		case 2:
			for range int(p.Limit) {
				send(w.replicas[rng.IntN(len(w.replicas))], log)
			}
		}
		if faulty && time.Now().After(nextFault) {
			nextFault = time.Now().Add(time.Duration(200+rng.IntN(2000)) * time.Millisecond)
			w.replicas[rng.IntN(len(w.replicas))].cut()
		}
		if withResets && time.Now().After(nextReset) {
			nextReset = time.Now().Add(time.Duration(500+rng.IntN(5000)) * time.Millisecond)
			r := w.replicas[rng.IntN(len(w.replicas))]
			b := &limiter.Batch{Charges: []limiter.Charge{log}}
			go func() {
				if _, err := r.store.Reset(context.Background(), limiter.Time(time.Now().UnixNano()), b, [][]byte{append(nameOf("s1", &log), 'x')}, 0); err == nil {
					unused := 0
					for _, x := range w.replicas {
						if x != r {
							unused += x.unused()
						}
					}
					w.mu.Lock()
					l.events = append(l.events, logEvent{at: time.Now().Add(-w.trip), reset: true, unused: unused + 60})
					w.mu.Unlock()
				}
			}()
		}
		r := w.replicas[favourite]
		if rng.IntN(3) == 0 {
			r = w.replicas[rng.IntN(len(w.replicas))]
		}
		charges := []limiter.Charge{log}
		if grouped && rng.IntN(2) == 0 {
			charges = append(charges, second)
			if rng.IntN(4) == 0 {
				charges[1].Group = 1
			}
			if rng.IntN(2) == 0 {
				slices.Reverse(charges)
			}
		}
		for i := range charges {
			if rng.IntN(6) == 0 {
				charges[i].Hits = 1 + rng.Uint64N(6)
			}
		}
		send(r, charges...)
	}
	time.Sleep(2 * time.Second)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	n, refunded := 0, 0
	for _, e := range l.events {
		n, refunded = n+e.hits, refunded+e.refunded
	}
	strict, _ := l.check(0)
	worst, at := l.check(p.Window/16 + 2*w.trip)
	t.Logf("N %d W %v demand %.0f: %d admitted, %d refunded, blocks %d acquired %d returned %d lost; refunds %v resets %v faults %v groups %v; excess strict %d, with life %d", p.Limit, p.Window, demand, n, refunded,
		w.hitsOf(blockAcquired), w.hitsOf(blockReturned), w.hitsOf(blockLost), withRefunds, withResets, faulty, grouped, strict, worst)
	if worst > 0 {
		t.Errorf("excess of %d at %v", worst, at)
	}
	if strict > 0 && worst == 0 {
		t.Logf("STRICT")
	}
}
