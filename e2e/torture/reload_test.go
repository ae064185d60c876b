//go:build torture

package torture

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// TestReloads repeatedly changes the rules while clients call. Unchanged rules keep exact counts,
// and no memory of previous rules remains.
func TestReloads(t *testing.T) {
	Parallel(t)
	for _, tt := range []struct {
		name    string
		start   func(t *testing.T, ledger *Ledger) (s *sluice.Sluice, reload func(version int))
		reloads int
	}{
		// A file is read twice, a tenth of a second apart.
		{"files", startWithFiles, Pick(20, 1000)},
		{"xds", startWithServer, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			Parallel(t)
			rnd := Rand(t)
			ledger := NewLedger(200, 100)
			s, reload := tt.start(t, ledger)
			call := ledger.Caller(t, s.Addr("grpc"), rnd)

			// Let one-time allocations happen first.
			warm := StartLoad(t, LoadOptions{Rate: Rate, Call: call})
			const first = 5
			version := 1
			for ; version <= first; version++ {
				reload(version)
			}
			warm.Run(t, time.Second)
			warm.Stop(t).NoErrors(t, "before")
			usage, heap := Measure(t, s), heapInUse(t, s)

			load := StartLoad(t, LoadOptions{Rate: Rate, Call: call})
			load.Run(t, time.Second)
			load.Phase("reloads")
			for ; version <= first+tt.reloads; version++ {
				reload(version)
				load.AwaitAnswers(t, 5)
			}
			load.Phase("after")
			load.Run(t, time.Second)
			report := load.Stop(t)
			report.AtLeast(t, MinRate, "before", "after")
			report.AtLeast(t, MinRate/4, "reloads")
			report.NoErrors(t, "before", "reloads", "after")
			ledger.CheckCounters(t, s)

			loads := suite.Metrics(t, s).Sum("ratelimit_service_config_load_success")
			if want := float64(version); loads != want {
				t.Errorf("%v rule sets were loaded, want %v", loads, want)
			}
			const most = 2 << 20
			after := heapInUse(t, s)
			t.Logf("%v reloads; heap in use %d KiB before, %d KiB after", loads-1, heap>>10, after>>10)
			if after > heap+most {
				t.Errorf("the heap has grown by %d KiB, want at most %d", (after-heap)>>10, most>>10)
			}
			suite.Eventually(t, fmt.Sprint("no more files and goroutines than before, ", usage), func() bool {
				now := Measure(t, s)
				return now.Goroutines <= usage.Goroutines && now.Files <= usage.Files
			})
		})
	}
}

// heapInUse returns the number of bytes in use on the heap.
func heapInUse(t *testing.T, s *sluice.Sluice) int {
	t.Helper()
	CollectGarbage(t, s)
	CollectGarbage(t, s) // pools are emptied by the second collection
	return int(suite.Metrics(t, s).Sum("go_memstats_heap_alloc_bytes"))
}

func startWithFiles(t *testing.T, ledger *Ledger) (*sluice.Sluice, func(version int)) {
	t.Helper()
	path := suite.WriteRules(t, ledger.Rules())
	s := Start(t, Options{Args: []string{"--config", path}})
	return s, func(version int) {
		t.Helper()
		more := []string{fmt.Sprintf("  - { key: changes, rate_limit: { unit: hour, requests_per_unit: %d } }", version)}
		for i := range version % 4 {
			more = append(more, fmt.Sprintf("  - { key: comes_%d, rate_limit: { unit: hour, requests_per_unit: 1 } }", i))
		}
		suite.Replace(t, path, ledger.Rules(more...))
		suite.Eventually(t, "the rules are active", func() bool {
			return limitOf(t, s, "changes") == version
		})
	}
}

// limitOf returns the active limit of a key in the ledger's domain.
func limitOf(t *testing.T, s *sluice.Sluice, key string) int {
	t.Helper()
	return int(suite.Metrics(t, s).Sum("sluice_rule_limit_requests", fmt.Sprintf("key1=%q", key)))
}

func startWithServer(t *testing.T, ledger *Ledger) (*sluice.Sluice, func(version int)) {
	t.Helper()
	manager, err := adstest.Start(adstest.Options{})
	must.OK(t, err)
	t.Cleanup(manager.Stop)
	set := func(version int, more ...*pb.RateLimitDescriptor) {
		t.Helper()
		must.OK(t, manager.Set(strconv.Itoa(version), ledger.Resource(more...)))
	}
	set(0)
	s := Start(t, Options{Args: []string{
		"--xds-addr", manager.Addr(), "--defaults", suite.WriteRules(t, ledger.Defaults()),
	}})
	return s, func(version int) {
		t.Helper()
		hourly := func(key string, requests int) *pb.RateLimitDescriptor {
			return &pb.RateLimitDescriptor{Key: key, RateLimit: &pb.RateLimitPolicy{
				Unit: pb.RateLimitUnit_HOUR, RequestsPerUnit: uint32(requests),
			}}
		}
		more := []*pb.RateLimitDescriptor{hourly("changes", version)}
		for i := range version % 4 {
			more = append(more, hourly(fmt.Sprint("comes_", i), 1))
		}
		set(version, more...)
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		defer cancel()
		if _, err := manager.Wait(ctx, adstest.Acked(strconv.Itoa(version))); err != nil {
			t.Fatal(err)
		}
	}
}
