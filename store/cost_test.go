package store

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

func TestCostTable(t *testing.T) {
	if os.Getenv("SLUICE_LONG") == "" {
		t.Skip("it measures: SLUICE_LONG=1 runs it, before a release")
	}
	policies := []struct {
		name string
		p    limiter.Policy
		hits uint64
	}{
		{"fixed", limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: time.Hour}, 1},
		{"bucket", limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 7, Window: time.Second, Burst: 1 << 31}, 1},
		{"bucket16", limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 3e9, Window: time.Second, Burst: 1 << 31}, 1},
		{"ring10", limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 1 << 30, Window: time.Hour, SubWindows: 10}, 1},
		{"ring60", limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 1 << 30, Window: time.Hour, SubWindows: 60}, 1},
		{"log10", limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 10, Window: time.Second, CountRefused: true}, 1},
		{"log1000", limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 1000, Window: time.Second, CountRefused: true}, 1},
		{"log4096", limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 4096, Window: time.Second, CountRefused: true}, 1},
		{"log4096x100", limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 4096, Window: time.Second, CountRefused: true}, 100},
		{"log4096x1000", limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 4096, Window: time.Second, CountRefused: true}, 1000},
		{"log4096x4096", limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 4096, Window: time.Second, CountRefused: true}, 4096},
	}
	for _, binary := range storetest.Binaries(t) {
		srv := storetest.StartBinary(t, binary)
		c := newClient(t, srv)
		var out strings.Builder
		for _, tt := range policies {
			n := 20
			var m message
			var r reply
			run := func(at limiter.Time, hits uint64) {
				m.clear(at)
				calls := make([]call, n)
				for i := range calls {
					charge := hit(uint64(i+1), &tt.p)
					charge.Hits = hits
					calls[i].encode(at, &limiter.Batch{Charges: []limiter.Charge{charge}}, [][]byte{fmt.Appendf(nil, "s1{%022d}x%s", i, tt.name)}, 0)
					m.add(&calls[i])
				}
				if err := c.run(&m, &r); err != nil {
					t.Fatal(err)
				}
			}
			now := limiter.Time(time.Now().UnixNano())
			for i := range 64 { // full logs, of stamps of different times
				run(now+limiter.Time(i)*limiter.Time(15*time.Millisecond), max(1, uint64(tt.p.Limit)/64))
			}
			now += limiter.Time(time.Second + time.Second/2)
			pid, _ := strconv.Atoi(strings.TrimSpace(func() string {
				_, v, _ := strings.Cut(srv.Must("INFO", "server"), "process_id:")
				v, _, _ = strings.Cut(v, "\r")
				return v
			}()))
			began := cpuOf(t, pid)
			const rounds = 50
			for i := range rounds {
				run(now+limiter.Time(i)*1e6, tt.hits)
			}
			total := float64(cpuOf(t, pid)-began) / 1000
			charge := hit(1, &tt.p)
			charge.Hits = tt.hits
			est := time.Duration(0)
			fmt.Fprintf(&out, "%s: %.1f us a charge, estimated %v\n", tt.name, total/rounds/float64(n), est)
		}
		t.Logf("%s\n%s", binary, out.String())
	}
}

// cpuOf returns the CPU time of a process's first thread, in nanoseconds.
func cpuOf(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(b), " ")
	n, _ := strconv.ParseInt(first, 10, 64)
	return n
}
