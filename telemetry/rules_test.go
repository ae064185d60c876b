package telemetry

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func newRules() (*Rules, *prometheus.Registry) {
	reg := prometheus.NewPedanticRegistry()
	return NewRules(reg), reg
}

// check compares the total_hits series, and that all of them are valid.
func check(t *testing.T, reg *prometheus.Registry, want ...string) {
	t.Helper()
	var text strings.Builder
	if len(want) > 0 {
		text.WriteString("# HELP ratelimit_service_rate_limit_total_hits Hits that asked this limit.\n# TYPE ratelimit_service_rate_limit_total_hits counter\n")
	}
	for _, w := range want {
		text.WriteString("ratelimit_service_rate_limit_total_hits" + w + "\n")
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(text.String()), "ratelimit_service_rate_limit_total_hits"); err != nil {
		t.Error(err)
	}
}

func TestConfiguredSeries(t *testing.T) {
	r, reg := newRules()
	a := RuleKey{Domain: "d", Rule: "a.b", Key1: "a", Key2: "b"}
	b := RuleKey{Domain: "d", Rule: "c", Key1: "c", Limit: "5/hour"}
	got := r.Configure([]RuleKey{a, b, a})
	if got[0] != got[2] || got[0] == got[1] {
		t.Errorf("Configure: equal keys must share counters, others not")
	}
	got[0].Add(Hits{Total: 3})
	check(t, reg, `{domain="d",key1="a",key2="b",limit="",rule="a.b"} 3`, `{domain="d",key1="c",key2="",limit="5/hour",rule="c"} 0`)

	// A reload keeps what stays and ends what goes.
	got = r.Configure([]RuleKey{a})
	got[0].Add(Hits{Total: 1})
	check(t, reg, `{domain="d",key1="a",key2="b",limit="",rule="a.b"} 4`)
}

func TestRuntimeSeries(t *testing.T) {
	r, reg := newRules()
	c, scratch := r.Runtime(nil, "d", "", []byte("k_x.s_1"), 3, 7)
	c.Add(Hits{Total: 2})
	again, _ := r.Runtime(scratch, "d", "", []byte("k_x.s_1"), 3, 7)
	if again != c {
		t.Error("the same key has other counters")
	}
	other, _ := r.Runtime(scratch, "d", "1/hour", []byte("k_x"), 3, 0)
	other.Add(Hits{Total: 5})
	check(t, reg, `{domain="d",key1="k_x",key2="s_1",limit="",rule="k_x.s_1"} 2`, `{domain="d",key1="k_x",key2="",limit="1/hour",rule="k_x"} 5`)
	if n := testing.AllocsPerRun(100, func() { _, scratch = r.Runtime(scratch, "d", "", []byte("k_x.s_1"), 3, 7) }); n != 0 {
		t.Errorf("Runtime of a known key allocates %v times, want 0", n)
	}
}

// A key may be configured and spelt by a request's values; there is one series.
func TestRuntimeKeyOfAConfiguredRule(t *testing.T) {
	r, reg := newRules()
	key := RuleKey{Domain: "d", Rule: "k_x", Key1: "k_x"}
	configured := r.Configure([]RuleKey{key})[0]
	c, _ := r.Runtime(nil, "d", "", []byte("k_x"), 3, 0)
	if c != configured {
		t.Error("a runtime key that is configured has counters of its own")
	}
	c.Add(Hits{Total: 1})
	check(t, reg, `{domain="d",key1="k_x",key2="",limit="",rule="k_x"} 1`)

	// The rule goes: the next request gets a series that is shown.
	r.Configure(nil)
	c, _ = r.Runtime(nil, "d", "", []byte("k_x"), 3, 0)
	c.Add(Hits{Total: 7})
	check(t, reg, `{domain="d",key1="k_x",key2="",limit="",rule="k_x"} 7`)

	// The rule comes back: its series goes on.
	r.Configure([]RuleKey{key})[0].Add(Hits{Total: 1})
	c, _ = r.Runtime(nil, "d", "", []byte("k_x"), 3, 0)
	c.Add(Hits{Total: 1})
	check(t, reg, `{domain="d",key1="k_x",key2="",limit="",rule="k_x"} 9`)
}

func TestSeriesAreBounded(t *testing.T) {
	r, reg := newRules()
	keys := make([]RuleKey, MaxConfigured+10)
	for i := range keys {
		name := fmt.Sprintf("c%d", i)
		keys[i] = RuleKey{Domain: "d", Rule: name, Key1: name}
	}
	configured := r.Configure(keys)
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

	// Strangers took their pool; a configured rule still has its own series.
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
		t.Errorf("%d decisions noted under other, want %d", got, 2*MaxRuntime+1)
	}
}

func TestAddStopsAtTheTop(t *testing.T) {
	var c RuleCounters
	c.Add(Hits{Total: math.MaxUint64 - 1, Over: 5, Near: 4, Within: 3, Shadow: 2})
	c.Add(Hits{Total: 7})
	if got := c.totalHits.Load(); got != math.MaxUint64 {
		t.Errorf("total is %d, want %d", got, uint64(math.MaxUint64))
	}
	if o, n, w, s := c.overLimit.Load(), c.nearLimit.Load(), c.withinLimit.Load(), c.shadowMode.Load(); o != 5 || n != 4 || w != 3 || s != 2 {
		t.Errorf("counters are %d %d %d %d, want 5 4 3 2", o, n, w, s)
	}
}

func TestRulesConcurrently(t *testing.T) {
	r, reg := newRules()
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
					r.Configure([]RuleKey{key})[0].Add(Hits{Total: 1})
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
		if got := c.totalHits.Load(); got != 4 {
			t.Fatalf("r%d has %d hits, want 4", i, got)
		}
	}
}
