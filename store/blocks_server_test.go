//go:build more

package store

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// Two replicas of a real server admit the limit exactly. It prints the cost; see
// docs/performance.md for that of complete services.
func TestBlocksOnAServer(t *testing.T) {
	const limit = 100_000
	for _, mode := range []string{BlocksOff, BlocksAuto} {
		srv := storetest.Start(t)
		stores := []*Store{runStore(t, Options{Server: serverAt(srv), Blocks: mode}), runStore(t, Options{Server: serverAt(srv), Blocks: mode})}
		for _, s := range stores {
			storetest.Eventually(t, "up", s.Up)
		}
		p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: limit, Window: limiter.MaxWindow}
		var admitted, requests atomic.Int64
		mine, theirs := processCPU(t), srv.CPU()
		var all sync.WaitGroup
		for _, s := range stores {
			for range 4 {
				all.Go(func() {
					var c caller
					for range limit / 8 * 5 / 4 {
						if err := c.decide(s, oneHit(1, p)); err != nil {
							t.Error(err)
						}
						requests.Add(1)
						if !c.b.Denied {
							admitted.Add(1)
						}
					}
				})
			}
		}
		all.Wait()
		mine, theirs = processCPU(t)-mine, srv.CPU()-theirs
		var c caller
		peek := oneHit(1, p)
		peek.Hits = 0
		storetest.Eventually(t, "the store has the admitted hits", func() bool {
			must.OK(t, c.decide(stores[0], peek))
			return int64(c.b.Decisions[0].Before) == admitted.Load()
		})
		if n := admitted.Load(); n > limit || mode == BlocksOff && n < limit {
			t.Errorf("blocks %s: %d hits admitted, want %d", mode, n, limit)
		}
		n := float64(requests.Load())
		t.Logf("blocks %s: %.0f requests, %.4f commands per request, %d of %d admitted, %.2f us of CPU per request of this process, %.2f of the server", mode, n,
			float64(sentCommands(srv))/n, admitted.Load(), limit, float64(mine.Microseconds())/n, float64(theirs.Microseconds())/n)
	}
}

// sentCommands returns the number of commands that clients have sent for charges.
func sentCommands(srv *storetest.Server) (n int) {
	for line := range strings.Lines(srv.Must("INFO", "commandstats")) {
		name, calls, _ := strings.Cut(line, ":calls=")
		if name == "cmdstat_evalsha" || name == "cmdstat_incrby" || name == "cmdstat_expireat" {
			calls, _, _ = strings.Cut(calls, ",")
			k, _ := strconv.Atoi(calls)
			n += k
		}
	}
	return n
}

// processCPU returns the CPU time of this process.
func processCPU(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	must.OK(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
