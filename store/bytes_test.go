//go:build more

package store

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A counter, including its name, expiry and share of the server's hash tables, takes no more memory
// than docs/store.md states. With -v the test prints the measurements.
func TestBytesPerCounter(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/store.md")
	must.OK(t, err)
	for _, binary := range storetest.Binaries(t) {
		for _, tt := range []struct {
			name string
			kind string // the part of the counter's name that identifies the algorithm
			hits uint64
			p    limiter.Policy
		}{
			{"`fixed_window`", "f60_", 1, limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1000, Window: time.Minute}},
			{"`token_bucket`, `leaky_bucket`", "t60", 1, limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 60, Window: time.Minute, Burst: 1000}},
			{"`sliding_window` of 10 sub-windows", "r60.10", 1, limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 1000, Window: time.Minute, SubWindows: 10}},
			{"`sliding_window` of 60 sub-windows", "r60.60", 1, limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 1000, Window: time.Minute, SubWindows: 60}},
			{"`concurrency` with 10 permits in use", "p60", 10, limiter.Policy{Algorithm: limiter.Concurrency, Limit: 1000, Window: time.Minute}},
			{"`concurrency` with 100 permits in use", "p60", 100, limiter.Policy{Algorithm: limiter.Concurrency, Limit: 1000, Window: time.Minute}},
			{"a penalty, in addition to its counter", "f60_", 2, limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Minute, Penalty: limiter.NewPenalty(time.Hour)}}, // a denied hit has none
			{"10 reservations", "f60_", 10, limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1e6, Window: time.Minute, Reserve: limiter.NewReserve(100, time.Minute, false)}},
			{"`sliding_log` with 10 hits", "l60", 10, limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 1000, Window: time.Minute}},
			{"`sliding_log` with 100 hits", "l60", 100, limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 1000, Window: time.Minute}},
		} {
			counters := 20_000
			if tt.p.UsesLeases() {
				counters = 2000 // each acquires several leases
			}
			srv := storetest.StartBinary(t, binary)
			c := newClient(t, srv)
			version := infoField(t, srv, "server", "redis_version") + " " + infoField(t, srv, "server", "valkey_version")
			empty := dataMemory(t, srv)
			must.OK(t, loadScript(c))
			var r script.Run
			calls := make([]script.Call, 200)
			for from := 0; from < counters; from += len(calls) {
				r.Clear(0)
				for i := range calls {
					charge := oneHit(1, &tt.p)
					charge.Hits, charge.Reserve = tt.hits, tt.p.Reserve != nil
					name := []byte(fmt.Sprintf("s1{%022d}%s", from+i, tt.kind))
					charges, names := []limiter.Charge{charge}, [][]byte{name}
					for tt.p.UsesLeases() && len(charges) < int(tt.hits) {
						charges, names = append(charges, charge), append(names, name)
					}
					calls[i].Encode(limiter.Time(time.Now().UnixNano()), &limiter.Batch{Charges: charges}, names, time.Minute)
					r.Add(&calls[i])
				}
				if script.DecideScript.Run(c, &r); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			name := calls[len(calls)-1].Keys[0]
			usage := srv.Must("MEMORY", "USAGE", name, "SAMPLES", "0")
			bytes := (dataMemory(t, srv) - empty) / counters
			t.Logf("%s: %s: %d bytes, %s by MEMORY USAGE", version, tt.name, bytes, usage)
			_, row, found := strings.Cut(string(page), "\n| "+tt.name+" | ")
			documented, _, _ := strings.Cut(row, " |")
			if most, err := strconv.Atoi(documented); !found || err != nil || bytes > most {
				t.Errorf("%s: a counter of %s takes %d bytes, want %q as in docs/store.md", version, tt.name, bytes, documented)
			}
		}
	}
}

// infoField returns a field of a server's INFO, or "".
func infoField(tb testing.TB, s *storetest.Server, section, name string) string {
	tb.Helper()
	_, rest, _ := strings.Cut(s.Must("INFO", section), "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

func parseNumber(tb testing.TB, text string) int {
	tb.Helper()
	n, err := strconv.Atoi(text)
	must.OK(tb, err)
	return n
}

// dataMemory returns the memory that a server uses for data. It removes the scripts, because Redis 8
// counts their garbage as used memory.
func dataMemory(t *testing.T, srv *storetest.Server) int {
	t.Helper()
	srv.Must("SCRIPT", "FLUSH", "SYNC")
	return parseNumber(t, infoField(t, srv, "memory", "used_memory")) - parseNumber(t, infoField(t, srv, "memory", "mem_clients_normal"))
}
