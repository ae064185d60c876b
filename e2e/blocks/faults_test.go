package blocks_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// storeTimeout is shorter and longer than the stalls.
const storeTimeout = 200 * time.Millisecond

// faults is a fleet with faults, and the number of events in each window that allow more hits.
type faults struct {
	*fleet

	links []*link

	mu       sync.Mutex
	starts   []map[int64]int // of replicas, by tenant and window
	restored []map[int64]int // counters that restarted at 0, by tenant and window
}

func startFaults(t *testing.T, fallback string) *faults {
	t.Helper()
	store := storetest.Start(t)
	var links []*link
	var addrs []string
	for range 3 {
		l := startLink(t, store.Addr)
		links, addrs = append(links, l), append(addrs, l.addr)
	}
	all := append([]tenant{{name: "hour", limit: 50_000, window: time.Hour, weight: 8}}, tenants...)
	f := &faults{links: links, fleet: startFleet(t, store, addrs, all, 2*storeTimeout,
		"--store-timeout", storeTimeout.String(), "--store-fallback", fallback)}
	for range all {
		f.starts, f.restored = append(f.starts, map[int64]int{}), append(f.restored, map[int64]int{})
	}
	return f
}

// during runs a fault and counts it for the windows in which it happened, and in the second after
// it: the first block of a window is charged before the window begins.
func (f *faults) during(events []map[int64]int, which func(tenant int) bool, fault func()) {
	start := time.Now()
	fault()
	f.mark(events, which, start, time.Now())
}

// mark is during for a fault from start to end.
func (f *faults) mark(events []map[int64]int, which func(tenant int) bool, start, end time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, l := range f.ledgers {
		for w := l.window(start); which(i) && w <= l.window(end.Add(time.Second)); w++ {
			events[i][w]++
		}
	}
}

// everyone selects all tenants.
func everyone(int) bool { return true }

// pause waits for up to twice the store's timeout. Its length is part of a fault, and no result
// depends on it.
func pause(ctx context.Context) {
	select {
	case <-time.After(time.Duration(rand.Int64N(int64(2 * storeTimeout)))):
	case <-ctx.Done():
	}
}

// kinds are the faults.
func (f *faults) kinds(t *testing.T) map[string]func() {
	t.Helper()
	one := func() *link { return f.links[rand.IntN(len(f.links))] }
	return map[string]func(){
		"cut": func() { one().cut() },
		"stall": func() {
			l := one()
			l.stall(true)
			pause(t.Context())
			l.stall(false)
		},
		"a stalled connection is cut": func() {
			l := one()
			l.stall(true)
			pause(t.Context())
			l.cut()
			l.stall(false)
		},
		"SIGSTOP of the store": func() {
			f.store.Stop()
			pause(t.Context())
			f.store.Continue()
		},
		"SIGSTOP of a sluice": func() {
			s := f.sluices[rand.IntN(len(f.sluices))].Load()
			must.OK(t, s.Signal(syscall.SIGSTOP))
			pause(t.Context())
			must.OK(t, s.Signal(syscall.SIGCONT))
		},
		"CLIENT KILL": func() { f.store.Must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") },
		"FLUSHALL":    func() { f.during(f.restored, everyone, func() { f.store.Must("FLUSHALL") }) },
		"reset": func() {
			replica, which := rand.IntN(len(f.sluices)), rand.IntN(len(f.tenants))
			f.during(f.restored, func(i int) bool { return i == which }, func() { f.reset(t, replica, which) })
		},
		"kill": func() {
			n := rand.IntN(len(f.sluices))
			f.during(f.starts, everyone, func() {
				f.sluices[n].Load().Kill()
				f.restart(t, n)
			})
		},
		"SIGTERM": func() {
			n := rand.IntN(len(f.sluices))
			f.during(f.starts, everyone, func() {
				ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
				defer cancel()
				if code, err := f.sluices[n].Load().Stop(ctx); code != 0 || err != nil {
					t.Errorf("Stop() = %d, %v, want 0, nil", code, err)
				}
				f.restart(t, n)
			})
		},
	}
}

// TestFaults causes faults while clients send requests. With the fallback error, a window exceeds
// its limit only if its counter was reset or deleted: once more for each time. With local, each
// replica may admit its remaining hits too, at most the limit.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, fallback := range []string{"error", "local"} {
		t.Run(fallback, func(t *testing.T) {
			t.Parallel()
			f := startFaults(t, fallback)
			f.hasty = true
			f.load(t, 2)
			kinds := f.kinds(t)
			for range times(t, 1, 10) {
				for name, fault := range kinds { // in random order
					start := time.Now()
					fault()
					t.Logf("%s from %d to %d ms", name, start.UnixMilli(), time.Now().UnixMilli())
					pause(t.Context())
				}
			}
			f.stop()
			f.verify(t, func(i int, w int64) int {
				n := f.tenants[i].limit * (1 + f.restored[i][w])
				if fallback == "local" {
					n *= 1 + len(f.sluices) + f.starts[i][w]
				}
				return n
			})
			t.Logf("%d requests answered, %d without an answer", f.requests.Load(), f.failed.Load())
		})
	}
}

// TestDyingReplica kills one replica again and again while it has blocks. No limit is exceeded, and
// the others still admit requests.
func TestDyingReplica(t *testing.T) {
	t.Parallel()
	f := startFaults(t, "error")
	f.hasty = true
	f.load(t, 2)
	for range 4 {
		f.sluices[0].Load().Kill()
		before, _ := f.total()
		suite.Eventually(t, "the other replicas admit requests", func() bool {
			now, _ := f.total()
			return now > before+500
		})
		f.restart(t, 0)
	}
	f.stop()
	f.verify(t, f.exact)
}

// total returns the hits of all tenants.
func (f *fleet) total() (admitted, denied int) {
	for _, l := range f.ledgers {
		a, d := l.total()
		admitted, denied = admitted+a, denied+d
	}
	return admitted, denied
}
