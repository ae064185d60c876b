package telemetry

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestStatsdOversizedLine has a metric whose line is longer than a packet. Other metrics are sent,
// and the error is counted and logged once, with the name of the metric.
func TestStatsdOversizedLine(t *testing.T) {
	addr, lines := packets(t, "udp", "127.0.0.1:0")
	s, m, logs := newTestStatsd(t, StatsdOptions{Network: "udp", Addr: addr})
	counters := configure(m.Rules, RuleKey{Domain: "d", Rule: strings.Repeat("x", 1500)}, RuleKey{Domain: "d", Rule: "y"})
	for i := range 5 {
		for _, c := range counters {
			c.Add(Hits{Total: 1})
		}
		if err := flush(t, s); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"ratelimit.service.rate_limit.d.y.total_hits:1|c"}, rateLimitLines(lines())); diff != "" {
			t.Errorf("flush %d: lines (-want +got):\n%s", i, diff)
		}
	}
	if got := testutil.ToFloat64(s.errors); got != 1 {
		t.Errorf("%v errors are counted, want 1", got)
	}
	logged := logs.FilterMessageSnippet("longer than a packet").All()
	if len(logged) != 1 || !strings.HasPrefix(fmt.Sprint(logged[0].ContextMap()["metric"]), "ratelimit.service.rate_limit.d.xxx") {
		t.Errorf("the log has %+v, want one line that names the metric", logged)
	}

	// Further oversized metrics are counted once each.
	more := configure(m.Rules, RuleKey{Domain: "d", Rule: strings.Repeat("x", 1500)}, RuleKey{Domain: "d", Rule: strings.Repeat("z", 1500)})
	for range 2 {
		more[1].Add(Hits{Total: 3, Over: 2, Within: 1})
		if err := flush(t, s); err != nil {
			t.Fatal(err)
		}
	}
	if got := testutil.ToFloat64(s.errors); got != 4 {
		t.Errorf("%v errors are counted, want 4", got)
	}
}

// TestStatsdPacketSizedLines sends lines of all lengths close to the packet size.
func TestStatsdPacketSizedLines(t *testing.T) {
	addr, lines := packets(t, "udp", "127.0.0.1:0")
	s, m, _ := newTestStatsd(t, StatsdOptions{Network: "udp", Addr: addr})
	const packet = 1432 // including the newline of the last line
	overhead := len("ratelimit.service.rate_limit.d..total_hits:1|c\n")
	var keys []RuleKey
	for n := packet - 5; n <= packet+5; n++ {
		keys = append(keys, RuleKey{Domain: "d", Rule: strings.Repeat("x", n-overhead)})
	}
	for _, c := range configure(m.Rules, keys...) {
		c.Add(Hits{Total: 1})
	}
	if err := flush(t, s); err != nil {
		t.Fatal(err)
	}
	var lengths []int
	for _, l := range rateLimitLines(lines()) {
		lengths = append(lengths, len(l)+1)
	}
	slices.Sort(lengths)
	if want := []int{packet - 5, packet - 4, packet - 3, packet - 2, packet - 1, packet}; !slices.Equal(lengths, want) {
		t.Errorf("lines of %v bytes were sent, want %v", lengths, want)
	}
	if got := testutil.ToFloat64(s.errors); got != 5 {
		t.Errorf("%v errors are counted, want 5", got)
	}
}

// TestStatsdOfRemovedRules removes rules and adds them again between flushes. All hits are sent
// exactly once.
func TestStatsdOfRemovedRules(t *testing.T) {
	addr, lines := packets(t, "udp", "127.0.0.1:0")
	s, m, _ := newTestStatsd(t, StatsdOptions{Network: "udp", Addr: addr, Tags: []Tag{{"zone", "a"}}})
	key, stays := RuleKey{Domain: "d", Rule: "k", Key1: "k"}, RuleKey{Domain: "d", Rule: "l", Key1: "l"}
	runtime := func(hits uint64) {
		c, _ := m.Rules.Runtime(nil, "d", "", []byte("v_1"), 3, 0)
		c.Add(Hits{Total: hits})
	}
	sent := map[string]int{}
	send := func() {
		t.Helper()
		if err := flush(t, s); err != nil {
			t.Fatal(err)
		}
		for _, l := range rateLimitLines(lines()) {
			name, rest, _ := strings.Cut(l, ":")
			n := 0
			if _, err := fmt.Sscanf(rest, "%d|c", &n); err != nil {
				t.Errorf("line %q: %v", l, err)
			}
			sent[name] += n
		}
	}
	want := func(k, l, v int) {
		t.Helper()
		const before, after = "ratelimit.service.rate_limit.d.", ".total_hits.__zone=a"
		got := map[string]int{"k": sent[before+"k"+after], "l": sent[before+"l"+after], "v": sent[before+"v_1"+after]}
		if diff := cmp.Diff(map[string]int{"k": k, "l": l, "v": v}, got); diff != "" {
			t.Errorf("hits that were sent (-want +got):\n%s", diff)
		}
	}
	counters := configure(m.Rules, key, stays)
	counters[0].Add(Hits{Total: 100})
	counters[1].Add(Hits{Total: 1000})
	runtime(10_000)
	send()
	want(100, 1000, 10_000)

	// Removed and added again with fewer and with more hits than before, twice between two flushes.
	counters[0].Add(Hits{Total: 1})
	counters[1].Add(Hits{Total: 1})
	runtime(1)
	configureLimits(m.Rules, []string{"other"})
	counters = configure(m.Rules, key, stays)
	counters[0].Add(Hits{Total: 150})
	counters[1].Add(Hits{Total: 7})
	runtime(3)
	counters = configure(m.Rules, stays)
	counters[0].Add(Hits{Total: 5})
	counters = configure(m.Rules, key, stays)
	counters[0].Add(Hits{Total: 20_000})
	send()
	want(100+1+150+20_000, 1000+1+7+5, 10_000+1+3)

	// Removed while the server is unavailable.
	counters[0].Add(Hits{Total: 2})
	runtime(2)
	configureLimits(m.Rules, []string{"other"})
	dial := s.conn.dial
	s.conn.dial = func(context.Context, string, string) (net.Conn, error) { return nil, errNotOpen }
	if err := flush(t, s); err == nil {
		t.Error("flush() = nil without a server")
	}
	s.conn.dial = dial
	send()
	want(20_253, 1013, 10_006)
	send()
	want(20_253, 1013, 10_006)
	for key := range s.series {
		if strings.Contains(key, "total_hits") && !strings.Contains(key, "negative") {
			t.Errorf("series %q is kept for a removed rule", key)
		}
	}
}

// TestEndedSeriesAreBounded reloads rules many times without a flush. Only the counts of the last
// ones are kept.
func TestEndedSeriesAreBounded(t *testing.T) {
	r, _ := newTestRules()
	r.keepEnded()
	keys := make([]RuleKey, 1000)
	for i := range keys {
		keys[i] = RuleKey{Domain: "d", Rule: fmt.Sprintf("k%d", i)}
	}
	for range 100 {
		for _, c := range configure(r, keys...) {
			c.Add(Hits{Total: 1})
		}
		configure(r)
	}
	if n := len(r.ended); n == 0 || n*len(keys) > maxEnded || (n+1)*len(keys) < maxEnded {
		t.Errorf("the series of %d loads are kept, each of %d, want at most %d", n, len(keys), maxEnded)
	}
	if last := r.ended[len(r.ended)-1]; last.load != r.loads {
		t.Errorf("the last series are of load %d, want %d", last.load, r.loads)
	}
}
