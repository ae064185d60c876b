//go:build more

package store

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// costlyCharges are charges of different cost.
var costlyCharges = func() (all []limiter.Charge) {
	for _, p := range []limiter.Policy{
		{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: time.Hour},
		{Algorithm: limiter.TokenBucket, Limit: 3e9, Window: time.Second, Burst: 1 << 31},
		{Algorithm: limiter.SlidingWindow, Limit: 1 << 30, Window: time.Hour, SubWindows: 10},
		{Algorithm: limiter.SlidingWindow, Limit: 1 << 30, Window: time.Hour, SubWindows: 60},
		{Algorithm: limiter.Concurrency, Limit: limiter.MaxLog, Window: time.Hour},
		{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: time.Hour, Reserve: limiter.NewReserve(limiter.MaxReservations, time.Hour, false)},
		{Algorithm: limiter.TokenBucket, Limit: 3e9, Window: time.Second, Burst: 1 << 31, Reserve: limiter.NewReserve(limiter.MaxReservations, time.Hour, false)},
		{Algorithm: limiter.TokenBucket, Limit: 3e9, Window: time.Second, Burst: 1 << 31, Penalty: limiter.NewPenalty(time.Minute)},
		{Algorithm: limiter.SlidingLog, Limit: 10, Window: time.Second, CountRefused: true},
		{Algorithm: limiter.SlidingLog, Limit: limiter.MaxLog, Window: time.Second, CountRefused: true},
	} {
		all = append(all, limiter.Charge{Policy: &p, Hits: 1, Reserve: p.Reserve != nil})
	}
	full := all[len(all)-1]
	for _, hits := range []uint64{100, 1000, limiter.MaxLog} {
		full.Hits = hits
		all = append(all, full)
	}
	return all
}()

func describeCostly(c *limiter.Charge) string {
	p := c.Policy
	switch p.Algorithm {
	case limiter.SlidingWindow:
		return fmt.Sprintf("a sliding window of %d", p.SubWindows)
	case limiter.SlidingLog:
		return fmt.Sprintf("%d hits on a log of %d", c.Hits, p.Limit)
	case limiter.Concurrency:
		return "a permit"
	default:
		if p.Penalty != nil {
			return "a bucket with a penalty"
		}
		if c.Reserve {
			return fmt.Sprintf("hits reserved by algorithm %d", p.Algorithm)
		}
		return map[limiter.Algorithm]string{limiter.FixedWindow: "a fixed window", limiter.TokenBucket: "a bucket"}[p.Algorithm]
	}
}

// TestCostTable prints how long the servers take for charges, in runs of 20 on full counters, next
// to the estimates. docs/store.md has them. It is a measurement and needs a quiet machine.
func TestCostTable(t *testing.T) {
	effort.Require(t, effort.All)
	for _, binary := range storetest.Binaries(t) {
		var table strings.Builder
		srv := storetest.StartBinary(t, binary)
		for i := range costlyCharges {
			cpu := measureCharge(t, srv, i)
			fmt.Fprintf(&table, "| %s | %.1f | %.1f |\n", describeCostly(&costlyCharges[i]), cpu.Seconds()*1e6, script.CostOf(costlyCharges[i].Policy, costlyCharges[i].Hits).Seconds()*1e6)
		}
		t.Logf("%s: CPU time of a charge in µs, and the estimate:\n%s", binary, table.String())
	}
}

func measureCharge(t *testing.T, srv *storetest.Server, i int) time.Duration {
	t.Helper()
	const charges, rounds = 20, 50
	c := newClient(t, srv)
	var r script.Run
	run := func(at limiter.Time, hits uint64) {
		r.Clear(at)
		calls := make([]script.Call, charges)
		for k := range calls {
			one := costlyCharges[i]
			one.Hits = hits
			calls[k].Encode(at, &limiter.Batch{Charges: []limiter.Charge{one}}, [][]byte{fmt.Appendf(nil, "s1{%022d}_%d", k, i)}, 0)
			r.Add(&calls[k])
		}
		if script.DecideScript.Run(c, &r); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	now := limiter.Time(time.Now().UnixNano())
	for n := range 64 { // the hits of a full log have different times
		run(now+limiter.Time(n)*limiter.Time(15*time.Millisecond), min(64, max(1, uint64(costlyCharges[i].Policy.Limit)/64)))
	}
	now += limiter.Time(1500 * time.Millisecond)
	began := cpuOf(t, srv)
	for n := range rounds {
		run(now+limiter.Time(n)*limiter.Time(time.Millisecond), costlyCharges[i].Hits)
	}
	return (cpuOf(t, srv) - began) / (rounds * charges)
}

// cpuOf returns the CPU time of a server's first thread.
func cpuOf(t *testing.T, srv *storetest.Server) time.Duration {
	t.Helper()
	_, id, _ := strings.Cut(srv.Must("INFO", "server"), "process_id:")
	id, _, _ = strings.Cut(id, "\r")
	b, err := os.ReadFile("/proc/" + id + "/schedstat")
	must.OK(t, err)
	first, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.ParseInt(first, 10, 64)
	must.OK(t, err)
	return time.Duration(n)
}
