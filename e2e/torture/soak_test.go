//go:build torture

package torture

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
)

var soakTime = flag.Duration("soak", 0, "duration of TestSoak; 0 means 12s, or 10m in the long tier")

// TestSoak combines calls, reloads, clients that connect and disconnect, and two attackers whose
// attack changes with each reload, for a long time. After the first minute, the memory of sluice
// without attackers must not grow.
func TestSoak(t *testing.T) {
	const (
		rate = 1000
		// Despite their lower priority, attackers use most of two cores.
		leastMeanwhile = 50
		attackers      = 2
		mostPeak       = attackers * maxMemory
		mostHeap       = 4 << 20  // allowed increase of heap in use after the first minute
		mostResident   = 16 << 20 // allowed increase of resident memory after the first minute
	)
	if *soakTime == 0 {
		*soakTime = Pick(12*time.Second, 10*time.Minute)
	}
	cycle := Pick(3*time.Second, 10*time.Second)
	first := Pick(2, 6) // cycles after which memory must not grow
	cycles := max(2*first, int(*soakTime/cycle))

	rnd := Rand(t)
	ledger := NewLedger(4000, 200)
	rules := func(version int) string {
		return ledger.Rules(
			fmt.Sprintf("  - { key: changes, rate_limit: { unit: hour, requests_per_unit: %d } }", version+1),
			"  - { key: attacker, rate_limit: { unit: year, requests_per_unit: 4294967295 } }",
		)
	}
	path := suite.WriteRules(t, rules(0))
	s := Start(t, Options{Args: []string{"--config", path}})
	load := StartLoad(t, LoadOptions{
		Rate: rate, Call: ledger.Caller(t, s.Addr("grpc"), rnd),
	})
	load.Run(t, 2*time.Second)
	CollectGarbage(t, s)
	base := Measure(t, s)

	load.Phase("soak")
	visits := startVisits(t, s, ledger)
	kinds := hostile.Attacks(hostile.Target{})
	var atRest []memoryUse
	for n := range cycles {
		suite.Replace(t, path, rules(n+1))
		var both []*process.Process
		for range attackers {
			both = append(both, child{
				Attack: kinds[rnd.IntN(len(kinds))].Name, Connections: 1, For: cycle,
				Target: hostile.Target{Addr: s.Addr("grpc"), Domain: "torture", Key: "attacker", Value: "a"},
			}.start(t, 10))
		}
		for _, p := range both {
			outcome(t, p)
		}
		suite.Eventually(t, "the rules are active", func() bool { return limitOf(t, s, "changes") == n+2 })
		// The client that connects and disconnects may have one connection open.
		suite.Eventually(t, "no more files and goroutines than before: "+base.String(), func() bool {
			now := Measure(t, s)
			return now.Goroutines <= base.Goroutines+visitGoroutines && now.Files <= base.Files+1
		})
		atRest = append(atRest, memoryUse{heap: heapInUse(t, s), resident: Measure(t, s).RSS})
	}
	visited := visits()
	load.Phase("after")
	load.Run(t, 2*time.Second)
	report := load.Stop(t)
	report.AtLeast(t, rate/2, "before", "after")
	report.AtLeast(t, leastMeanwhile, "soak")
	report.NoErrors(t, "before", "soak", "after")
	ledger.CheckCounters(t, s)

	// Free but resident heap varies by tens of MiB. A leak increases the minimum.
	var ceiling memoryUse
	for _, h := range atRest[:first] {
		ceiling = memoryUse{max(ceiling.heap, h.heap), max(ceiling.resident, h.resident)}
	}
	last := atRest[len(atRest)-1]
	for _, h := range atRest[len(atRest)-first:] {
		last = memoryUse{min(last.heap, h.heap), min(last.resident, h.resident)}
	}
	most := Measure(t, s)
	t.Logf("%d reloads, %d visits; between attacks at most %v in the first %d cycles, at least %v in the last", cycles, visited, ceiling, first, last)
	if most.Peak > base.RSS+mostPeak {
		t.Errorf("at most %d MiB were resident, %d before; want at most %d more", most.Peak>>20, base.RSS>>20, mostPeak>>20)
	}
	if last.heap > ceiling.heap+mostHeap || last.resident > ceiling.resident+mostResident {
		t.Errorf("memory grew from %v to %v", ceiling, last)
	}
	if least := cycles * int(cycle/time.Second); visited < least {
		t.Errorf("%d clients connected and disconnected, want at least %d", visited, least)
	}
	if got := int(suite.Metrics(t, s).Sum("ratelimit_service_config_load_success")); got != cycles+1 {
		t.Errorf("%d rule sets were loaded, want %d", got, cycles+1)
	}
}

// memoryUse is memory in bytes: heap in use after a garbage collection, and resident.
type memoryUse struct{ heap, resident int }

func (h memoryUse) String() string {
	return fmt.Sprintf("%.1f MiB of heap, %.1f MiB resident", float64(h.heap)/(1<<20), float64(h.resident)/(1<<20))
}

// visitGoroutines is the number of goroutines of sluice per connection.
const visitGoroutines = 8

// startVisits has a client connect, make one call and disconnect, ten times per second, so that
// leaks per connection add up. The returned function stops the visits and returns their number.
func startVisits(t *testing.T, s *sluice.Sluice, ledger *Ledger) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	visited := 0
	group.Go(func() {
		tick := time.NewTicker(time.Second / 10)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			conn := Dial(t, s.Addr("grpc"))
			// The deadline includes connecting.
			call, done := context.WithTimeout(ctx, Patience)
			_, err := ledger.Call(call, rls.NewRateLimitServiceClient(conn), Key{Rule: "fixed_window", Value: "visitor"})
			done()
			conn.Close()
			if err != nil && ctx.Err() == nil {
				t.Errorf("visit %d: %v", visited, err)
			}
			visited++
		}
	})
	stop = func() int {
		cancel()
		group.Wait()
		return visited
	}
	t.Cleanup(func() { stop() })
	return stop
}
