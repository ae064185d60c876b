package telemetry

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// newTestRules returns rules and a registry for them, which validates their metrics.
func newTestRules() (*Rules, prometheus.Gatherer) {
	r := newRules(nil)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(rulesCollector{r})
	limits := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return r.gather(), nil })
	return r, prometheus.Gatherers{reg, limits}
}

// configure configures limits of the domain d with these keys.
func configure(r *Rules, keys ...RuleKey) []*RuleCounters {
	limits := make([]RuleLimit, len(keys))
	for i, k := range keys {
		limits[i].Key = k
	}
	return configureLimits(r, []string{"d"}, limits...)
}

// configureLimits configures limits and returns the counters of all of them. Get is called for
// each, as by a hit.
func configureLimits(r *Rules, domains []string, limits ...RuleLimit) []*RuleCounters {
	c := r.Configure(domains, len(limits), func(i int) RuleLimit { return limits[i] })
	out := make([]*RuleCounters, len(limits))
	for i := range limits {
		out[i] = c.Get(i)
	}
	return out
}

// expectTotalHits compares the total_hits series, and that all of them are valid.
func expectTotalHits(t *testing.T, reg prometheus.Gatherer, want ...string) {
	t.Helper()
	var text strings.Builder
	if len(want) > 0 {
		text.WriteString("# HELP ratelimit_service_rate_limit_total_hits Hits that this limit was applied to.\n# TYPE ratelimit_service_rate_limit_total_hits counter\n")
	}
	for _, w := range want {
		text.WriteString("ratelimit_service_rate_limit_total_hits" + w + "\n")
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(text.String()), "ratelimit_service_rate_limit_total_hits"); err != nil {
		t.Error(err)
	}
}

func TestConfiguredSeries(t *testing.T) {
	r, reg := newTestRules()
	a := RuleKey{Domain: "d", Rule: "a.b", Key1: "a", Key2: "b"}
	b := RuleKey{Domain: "d", Rule: "c", Key1: "c", Limit: "5/hour"}
	got := configure(r, a, b, a)
	if got[0] != got[2] || got[0] == got[1] {
		t.Errorf("Configure: equal keys must share counters, others not")
	}
	got[0].Add(Hits{Total: 3})
	expectTotalHits(t, reg, `{domain="d",key1="a",key2="b",limit="",rule="a.b"} 3`, `{domain="d",key1="c",key2="",limit="5/hour",rule="c"} 0`)

	// A reload keeps the series of remaining keys and ends the others.
	got = configure(r, a)
	got[0].Add(Hits{Total: 1})
	expectTotalHits(t, reg, `{domain="d",key1="a",key2="b",limit="",rule="a.b"} 4`)
}

// TestUnhitRulesHaveNoSeries checks that only the first MaxUnhit rules have series before their
// first hit. A series continues after a reload, even if the rule has another position.
func TestUnhitRulesHaveNoSeries(t *testing.T) {
	r, reg := newTestRules()
	key := func(i int) RuleLimit {
		name := fmt.Sprint("k", i)
		return RuleLimit{Key: RuleKey{Domain: "d", Rule: name, Key1: name}}
	}
	const n = 3 * MaxUnhit
	c := r.Configure([]string{"d"}, n, key)
	series := func() int {
		t.Helper()
		n, err := testutil.GatherAndCount(reg, "ratelimit_service_rate_limit_total_hits")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := series(); got != MaxUnhit {
		t.Errorf("%d series before the first hit, want %d", got, MaxUnhit)
	}
	c.Get(0).Add(Hits{Total: 1})
	c.Get(n - 1).Add(Hits{Total: 5})
	if got := series(); got != MaxUnhit+1 {
		t.Errorf("%d series, want one more for the rule that was hit", got)
	}
	if n := must.AllocsPerRun(100, func() { c.Get(n - 1).Add(Hits{Total: 1}) }); n != 0 {
		t.Errorf("a hit of a rule that was hit before allocates %v times, want 0", n)
	}
	before := c.Get(n - 1)
	later := r.Configure([]string{"d"}, n+1, func(i int) RuleLimit { return key(i - 1) })
	if later.Get(n) != before || series() != MaxUnhit+2 { // the series of key(-1) is new
		t.Errorf("a rule that was hit has other counters after a reload, or %d series", series())
	}
	// A request that started with the older rules still counts.
	c.Get(n - 2).Add(Hits{Total: 3})
	if got := later.Get(n - 1).Hits().Total; got != 3 {
		t.Errorf("the rule has %d hits, want the 3 of a request with older rules", got)
	}
}

// TestRuntimeKeyOfUnhitRule has a runtime key equal the key of a configured rule without a series.
// Both share one series.
func TestRuntimeKeyOfUnhitRule(t *testing.T) {
	r, reg := newTestRules()
	limits := make([]RuleLimit, MaxUnhit+1)
	for i := range limits {
		limits[i].Key = RuleKey{Domain: "d", Rule: "same", Key1: "same"}
	}
	limits[MaxUnhit].Key = RuleKey{Domain: "d", Rule: "late", Key1: "late"}
	c := r.Configure([]string{"d"}, len(limits), func(i int) RuleLimit { return limits[i] })
	runtime, _ := r.Runtime(nil, "d", "", []byte("late"), 4, 0)
	runtime.Add(Hits{Total: 2})
	c.Get(MaxUnhit).Add(Hits{Total: 1})
	again, _ := r.Runtime(nil, "d", "", []byte("late"), 4, 0)
	again.Add(Hits{Total: 4})
	expectTotalHits(t, reg, `{domain="d",key1="late",key2="",limit="",rule="late"} 7`, `{domain="d",key1="same",key2="",limit="",rule="same"} 0`)
}

func TestRuntimeSeries(t *testing.T) {
	r, reg := newTestRules()
	c, scratch := r.Runtime(nil, "d", "", []byte("k_x.s_1"), 3, 7)
	c.Add(Hits{Total: 2})
	again, _ := r.Runtime(scratch, "d", "", []byte("k_x.s_1"), 3, 7)
	if again != c {
		t.Error("the same key has other counters")
	}
	other, _ := r.Runtime(scratch, "d", "1/hour", []byte("k_x"), 3, 0)
	other.Add(Hits{Total: 5})
	expectTotalHits(t, reg, `{domain="d",key1="k_x",key2="s_1",limit="",rule="k_x.s_1"} 2`, `{domain="d",key1="k_x",key2="",limit="1/hour",rule="k_x"} 5`)
	if n := must.AllocsPerRun(100, func() { _, scratch = r.Runtime(scratch, "d", "", []byte("k_x.s_1"), 3, 7) }); n != 0 {
		t.Errorf("Runtime of a known key allocates %v times, want 0", n)
	}
}

// TestRuntimeKeyOfConfiguredRule has a runtime key equal the key of a configured rule. Both share
// one series.
func TestRuntimeKeyOfConfiguredRule(t *testing.T) {
	r, reg := newTestRules()
	key := RuleKey{Domain: "d", Rule: "k_x", Key1: "k_x"}
	configured := configure(r, key)[0]
	c, _ := r.Runtime(nil, "d", "", []byte("k_x"), 3, 0)
	if c != configured {
		t.Error("a runtime key that is also configured has separate counters")
	}
	c.Add(Hits{Total: 1})
	expectTotalHits(t, reg, `{domain="d",key1="k_x",key2="",limit="",rule="k_x"} 1`)

	// The rule is removed: the next request gets a new series.
	configure(r)
	c, _ = r.Runtime(nil, "d", "", []byte("k_x"), 3, 0)
	c.Add(Hits{Total: 7})
	expectTotalHits(t, reg, `{domain="d",key1="k_x",key2="",limit="",rule="k_x"} 7`)

	// The rule is added again: the series continues.
	configure(r, key)[0].Add(Hits{Total: 1})
	c, _ = r.Runtime(nil, "d", "", []byte("k_x"), 3, 0)
	c.Add(Hits{Total: 1})
	expectTotalHits(t, reg, `{domain="d",key1="k_x",key2="",limit="",rule="k_x"} 9`)
}

func TestSeriesAreBounded(t *testing.T) {
	if MaxConfigured != 10_000 || MaxRuntime != 1000 {
		t.Errorf("the bounds are %d and %d; docs/sizing.md states 10,000 and 1,000", MaxConfigured, MaxRuntime)
	}
	r, reg := newTestRules()
	keys := make([]RuleKey, MaxConfigured+10)
	for i := range keys {
		name := fmt.Sprintf("c%d", i)
		keys[i] = RuleKey{Domain: "d", Rule: name, Key1: name}
	}
	configured := configure(r, keys...)
	if configured[MaxConfigured] != configured[MaxConfigured+9] || configured[MaxConfigured] == configured[0] {
		t.Error("rules beyond the bound must share counters of their own")
	}
	var scratch []byte
	for i := range 3 * MaxRuntime {
		var c *RuleCounters
		c, scratch = r.Runtime(scratch, "d", "", fmt.Appendf(nil, "r%d", i), 2, 0)
		c.Add(Hits{Total: 1})
	}
	long, _ := r.Runtime(scratch, "d", "", []byte(strings.Repeat("x", 10_000)), 10_000, 0)
	long.Add(Hits{Total: 1})

	// Runtime keys have used up their pool, but a configured rule still has its own series.
	configured[7].Add(Hits{Total: 42})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"c7": 42, "other": 2*MaxRuntime + 1, "r0": 1}
	for _, f := range families {
		if f.GetName() != "ratelimit_service_rate_limit_total_hits" {
			continue
		}
		if got, limit := len(f.GetMetric()), MaxConfigured+MaxRuntime+1; got != limit {
			t.Errorf("%d series, want %d", got, limit)
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if w, ok := want[l.GetValue()]; l.GetName() == "rule" && ok {
					if got := m.GetCounter().GetValue(); got != w {
						t.Errorf("rule %s has %v hits, want %v", l.GetValue(), got, w)
					}
					delete(want, l.GetValue())
				}
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("series missing: %v", want)
	}
	if got := r.spill.Load(); got != 2*MaxRuntime+1 {
		t.Errorf("%d decisions are counted under other, want %d", got, 2*MaxRuntime+1)
	}
}

func TestAddSaturates(t *testing.T) {
	var c RuleCounters
	c.Add(Hits{Total: math.MaxUint64 - 1, Over: 5, Near: 4, Within: 3, Shadow: 2})
	c.Add(Hits{Total: 7})
	if got := c.Hits().Total; got != math.MaxUint64 {
		t.Errorf("total is %d, want %d", got, uint64(math.MaxUint64))
	}
	if o, n, w, s := c.overLimit.Load(), c.nearLimit.Load(), c.withinLimit.Load(), c.shadowMode.Load(); o != 5 || n != 4 || w != 3 || s != 2 {
		t.Errorf("counters are %d %d %d %d, want 5 4 3 2", o, n, w, s)
	}
}

func TestRulesConcurrently(t *testing.T) {
	r, reg := newTestRules()
	key := RuleKey{Domain: "d", Rule: "k", Key1: "k"}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var scratch []byte
			for i := range 500 {
				var c *RuleCounters
				c, scratch = r.Runtime(scratch, "d", "", fmt.Appendf(nil, "r%d", i), 2, 0)
				c.Add(Hits{Total: 1})
				if i%50 == g {
					configure(r, key)[0].Add(Hits{Total: 1})
					if _, err := reg.Gather(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for i := range 500 {
		c, _ := r.Runtime(nil, "d", "", fmt.Appendf(nil, "r%d", i), 2, 0)
		if got := c.Hits().Total; got != 4 {
			t.Fatalf("r%d has %d hits, want 4", i, got)
		}
	}
}

// TestRuleNamedOther has a runtime key and a rule named "other", like the overflow series. They
// share one series: two with the same labels would make the complete page invalid.
func TestRuleNamedOther(t *testing.T) {
	r, reg := newTestRules()
	configure(r, RuleKey{Domain: "d", Rule: "k", Key1: "k"})
	c, _ := r.Runtime(nil, "d", "", []byte(other), len(other), 0)
	c.Add(Hits{Total: 1})
	long, _ := r.Runtime(nil, "d", "", []byte(strings.Repeat("x", 10_000)), 10_000, 0)
	long.Add(Hits{Total: 2})
	expectTotalHits(t, reg, `{domain="d",key1="k",key2="",limit="",rule="k"} 0`, `{domain="d",key1="other",key2="",limit="",rule="other"} 3`)

	configure(r, RuleKey{Domain: "d", Rule: other, Key1: other})[0].Add(Hits{Total: 4})
	long, _ = r.Runtime(nil, "d", "", []byte(strings.Repeat("x", 10_000)), 10_000, 0)
	long.Add(Hits{Total: 8})
	expectTotalHits(t, reg, `{domain="d",key1="other",key2="",limit="",rule="other"} 15`)
	configure(r)
	expectTotalHits(t, reg, `{domain="d",key1="other",key2="",limit="",rule="other"} 15`)
}

func TestInvalidRuntimeKeys(t *testing.T) {
	r, reg := newTestRules()
	configure(r)
	c, _ := r.Runtime(nil, "d", "", []byte("k_\xff"), 3, 0)
	c.Add(Hits{Total: 1})
	c, _ = r.Runtime(nil, "d", "", []byte("k_\"\n\\"), 5, 0)
	c.Add(Hits{Total: 1})
	c, _ = r.Runtime(nil, "d", "name of a row \xff", []byte("k"), 1, 0)
	c.Add(Hits{Total: 1})
	expectTotalHits(t, reg, `{domain="d",key1="other",key2="",limit="",rule="other"} 2`, `{domain="d",key1="k_\"\n\\",key2="",limit="",rule="k_\"\n\\"} 1`)
}

// TestRuntimeKeysOfRemovedDomain checks that the runtime keys of a removed domain no longer count
// against the bound.
func TestRuntimeKeysOfRemovedDomain(t *testing.T) {
	r, reg := newTestRules()
	configureLimits(r, []string{"d", "gone"})
	for i := range MaxRuntime {
		r.Runtime(nil, "gone", "", fmt.Appendf(nil, "r%d", i), 2, 0)
	}
	configure(r)
	c, _ := r.Runtime(nil, "d", "", []byte("k"), 1, 0)
	c.Add(Hits{Total: 1})
	expectTotalHits(t, reg, `{domain="d",key1="k",key2="",limit="",rule="k"} 1`)
	// A request that started before the reload does not panic.
	long, _ := r.Runtime(nil, "gone", "", []byte(strings.Repeat("x", 10_000)), 10_000, 0)
	long.Add(Hits{Total: 1})
}

func TestConfiguredNumbers(t *testing.T) {
	r, reg := newTestRules()
	k := RuleKey{Domain: "d", Rule: "k.l", Key1: "k", Key2: "l", Limit: "60/minute"}
	configureLimits(
		r, []string{"d"},
		RuleLimit{Key: k, Requests: 60, Window: time.Minute},
		RuleLimit{Key: k, Requests: 5, Window: time.Hour},          // shares the series
		RuleLimit{Key: RuleKey{Domain: "d", Rule: "u", Key1: "u"}}, // unlimited
	)
	want := `
# HELP sluice_rule_limit_requests Requests that a configured limit allows per window.
# TYPE sluice_rule_limit_requests gauge
sluice_rule_limit_requests{domain="d",key1="k",key2="l",limit="60/minute",rule="k.l"} 60
# HELP sluice_rule_window_seconds Window of a configured limit.
# TYPE sluice_rule_window_seconds gauge
sluice_rule_window_seconds{domain="d",key1="k",key2="l",limit="60/minute",rule="k.l"} 60
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "sluice_rule_limit_requests", "sluice_rule_window_seconds"); err != nil {
		t.Error(err)
	}
}

// TestOverflowTakesNoLock counts a hit beyond the bounds while the lock is held, as by a scrape.
func TestOverflowTakesNoLock(t *testing.T) {
	r, _ := newTestRules()
	configure(r)
	for i := range MaxRuntime {
		r.Runtime(nil, "d", "", fmt.Appendf(nil, "r%d", i), 2, 0)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key, scratch := []byte("one more"), make([]byte, 0, 64)
	if n := must.AllocsPerRun(100, func() { _, scratch = r.Runtime(scratch, "d", "", key, 3, 0) }); n != 0 {
		t.Errorf("Runtime beyond the bound allocates %v times, want 0", n)
	}
}
