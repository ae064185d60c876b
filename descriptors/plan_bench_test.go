package descriptors

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

const hotRules = `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: hour, requests_per_unit: 10, name: a}
  - key: b
    value: x*y*z
    share_threshold: true
    detailed_metric: true
    rate_limits:
      - {unit: hour, requests_per_unit: 10}
      - {unit: day, requests_per_unit: 10, replaces: [{name: a}]}
    descriptors:
      - key: c
        detailed_metric: true
        rate_limit: {unit: hour, requests_per_unit: 10}
  - key: all
    rate_limits:
      - {unit: hour, requests_per_unit: 10}
      - {unit: hour, requests_per_unit: 10, algorithm: sliding_window}
      - {unit: hour, requests_per_unit: 10, algorithm: sliding_log}
      - {unit: hour, requests_per_unit: 10, algorithm: token_bucket}
      - {unit: hour, requests_per_unit: 10, algorithm: leaky_bucket}
  - key: tried
    rate_limits:
      - {unit: hour, requests_per_unit: 10, name: a}
      - {unit: hour, requests_per_unit: 5, shadow: true}
  - {key: token, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: token_bucket, burst: 3}}
  - {key: leaky, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: leaky_bucket, max_wait: 1s}}
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: sliding_log}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 5, calendar: true, timezone: Europe/Berlin}}
`

func TestHotPathAllocatesNothing(t *testing.T) {
	s := load(t, Options{}, hotRules)
	for _, tc := range []struct {
		name  string
		descs []Descriptor
	}{
		{"match", []Descriptor{desc("a", "1"), desc("no", "1"), desc("b", "nothing")}},
		{"list and wildcards", []Descriptor{desc("b", "x1y2z"), desc("b", "xyz", "c", "1")}},
		{"candidates", []Descriptor{desc("tried", "1"), desc("a", "1"), desc("tried", "2")}},
		{"replaces", []Descriptor{desc("a", "1"), desc("b", "xyz")}},
		{"override", []Descriptor{desc("a", "1").limit(1, 1, 0), desc("q", "1").limit(1, 4, 2), desc("q", "1").limit(1, 0, 0)}},
		{"all algorithms", []Descriptor{desc("all", "1")}},
		{"override of algorithms", []Descriptor{
			desc("token", "1").limit(7, 4, 0), desc("leaky", "1").limit(1, 6, 10), desc("log", "1").limit(5000, 1, 0), desc("all", "1").limit(5000, 1, 0),
			desc("month", "1").limit(9, 4, 0),
		}},
		{"unknown domain", nil},
	} {
		p, req := &Plan{}, &Request{Domain: []byte("d"), Descriptors: tc.descs}
		if tc.descs == nil {
			req.Domain = []byte("e")
		}
		if n := must.AllocsPerRun(100, func() { s.Plan(p, req, Global{}) }); n != 0 {
			t.Errorf("Plan of %s allocates %v times", tc.name, n)
		}
	}
	entries := desc("b", "x1y2z", "c", "10.0.0.1:80").Entries
	rule, key := s.Explain("d", entries).Rule, make([]byte, 0, 100)
	if rule == nil || !rule.RuntimeMetric {
		t.Fatalf("rule = %+v, want one with runtime metrics", rule)
	}
	if n := must.AllocsPerRun(100, func() { rule.AppendMetricKey(key, entries) }); n != 0 {
		t.Errorf("AppendMetricKey allocates %v times", n)
	}
	if n := must.AllocsPerRun(100, func() { MetricKeys{}.AppendOverride(key, entries) }); n != 0 {
		t.Errorf("AppendOverride allocates %v times", n)
	}
}

// manyRules returns n rules of three levels, most of which differ on the last level only.
func manyRules(b *testing.B, n int) *Set {
	b.Helper()
	limit := []rules.Limit{{Unit: rules.Hour, UnitMultiplier: 1, RequestsPerUnit: 10}}
	wide := max(1, n/100)
	cfg := rules.Config{Domain: "d"}
	for i := 0; i < n; {
		first := rules.Descriptor{Key: "tenant", Value: fmt.Sprint("tenant-", len(cfg.Descriptors))}
		second := rules.Descriptor{Key: "method", Value: "GET"}
		for range min(wide, n-i) {
			second.Descriptors = append(second.Descriptors,
				rules.Descriptor{Key: "path", Value: fmt.Sprint("/api/v1/resource-", i), RateLimits: limit})
			i++
		}
		first.Descriptors = []rules.Descriptor{second}
		cfg.Descriptors = append(cfg.Descriptors, first)
	}
	s, ds := Compile([]rules.Config{cfg}, Options{})
	must.OK(b, ds.Err())
	return s
}

func BenchmarkMatch(b *testing.B) {
	var addresses addressReader
	for _, n := range []int{10, 1000, 100_000} {
		s := manyRules(b, n)
		d, wide := s.domains["d"], max(1, n/100)
		at := func(i int) []Entry {
			return desc("tenant", fmt.Sprint("tenant-", i/wide), "method", "GET", "path", fmt.Sprint("/api/v1/resource-", i)).Entries
		}
		b.Run(fmt.Sprintf("entries=3/request=fixed/rules=%d", n), func(b *testing.B) {
			entries := at(n / 2)
			b.ReportAllocs()
			for b.Loop() {
				if d.match(entries, &addresses) == nil {
					b.Fatal("no match")
				}
			}
		})
		b.Run(fmt.Sprintf("entries=3/request=random/rules=%d", n), func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 2))
			requests := make([][]Entry, 1<<14)
			for i := range requests {
				requests[i] = at(random.IntN(n))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d.match(requests[i&(1<<14-1)], &addresses) == nil {
					b.Fatal("no match")
				}
			}
		})
	}
}

func BenchmarkPlan(b *testing.B) {
	s := manyRules(b, 1000)
	req := &Request{Domain: []byte("d"), Descriptors: []Descriptor{
		desc("tenant", "tenant-5", "method", "GET", "path", "/api/v1/resource-55"),
		desc("tenant", "tenant-7", "method", "GET"),
	}}
	limited := &Request{Domain: []byte("d"), Descriptors: []Descriptor{
		req.Descriptors[0], desc("remote_address", "10.0.0.1", "path", "/x").limit(5, 1, 0),
	}}
	for name, req := range map[string]*Request{"charges=1": req, "charges=2/override=1": limited} {
		b.Run("descriptors=2/entries=5/"+name, func(b *testing.B) {
			p := &Plan{}
			b.ReportAllocs()
			for b.Loop() {
				s.Plan(p, req, Global{})
			}
		})
	}
	two := load(b, Options{}, `
domain: d
descriptors:
  - key: tenant
    descriptors:
      - key: method
        descriptors:
          - {key: path, rate_limit: {unit: hour, requests_per_unit: 10}}
  - key: remote_address
    descriptors:
      - {key: method, rate_limit: {unit: second, requests_per_unit: 10}}
`)
	req = &Request{Domain: []byte("d"), Descriptors: []Descriptor{
		desc("tenant", "tenant-5", "method", "GET", "path", "/api/v1/resource-55"),
		desc("remote_address", "10.0.0.1", "method", "GET"),
	}}
	b.Run("descriptors=2/entries=5/charges=2", func(b *testing.B) {
		p := &Plan{}
		b.ReportAllocs()
		for b.Loop() {
			two.Plan(p, req, Global{})
		}
		if len(p.Limits) != 2 {
			b.Fatal("not limited")
		}
	})
}
