package descriptors

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// limited returns a rule file with one limit of key k, which has the given fields.
func limited(fields string) string {
	return "domain: d\ndescriptors: [{key: k, rate_limit: {" + fields + "}}]"
}

func TestPolicyFromFields(t *testing.T) {
	const minute = "unit: minute, requests_per_unit: 60, "
	for _, tc := range []struct {
		fields string
		want   limiter.Policy
	}{
		{minute, limiter.Policy{Algorithm: limiter.FixedWindow, CountRefused: true}},
		{minute + "algorithm: fixed_window", limiter.Policy{Algorithm: limiter.FixedWindow, CountRefused: true}},
		{minute + "algorithm: sliding_window", limiter.Policy{Algorithm: limiter.SlidingWindow, SubWindows: 10}},
		{minute + "algorithm: sliding_window, sub_windows: 1", limiter.Policy{Algorithm: limiter.SlidingWindow, SubWindows: 1}},
		{minute + "algorithm: sliding_log", limiter.Policy{Algorithm: limiter.SlidingLog}},
		{minute + "algorithm: sliding_log, count_refused: true", limiter.Policy{Algorithm: limiter.SlidingLog, CountRefused: true}},
		{minute + "algorithm: token_bucket", limiter.Policy{Algorithm: limiter.TokenBucket, Burst: 60}},
		{minute + "algorithm: token_bucket, burst: 1, count_refused: true", limiter.Policy{Algorithm: limiter.TokenBucket, Burst: 1, CountRefused: true}},
		{minute + "name: n, algorithm: concurrency", limiter.Policy{Algorithm: limiter.Concurrency}},
		{minute + "name: n, algorithm: concurrency, count_refused: false", limiter.Policy{Algorithm: limiter.Concurrency}},
		{minute + "algorithm: leaky_bucket", limiter.Policy{Algorithm: limiter.LeakyBucket, Slack: 10, MaxWaiting: 100}},
		{minute + "algorithm: leaky_bucket, slack: 0", limiter.Policy{Algorithm: limiter.LeakyBucket, MaxWaiting: 100}},
		{
			minute + "algorithm: leaky_bucket, max_wait: 50ms, max_waiting: 0",
			limiter.Policy{Algorithm: limiter.LeakyBucket, Slack: 10, MaxWait: 50 * time.Millisecond},
		},
	} {
		tc.want.Limit, tc.want.Window = 60, time.Minute
		if got := load(t, Options{}, limited(tc.fields)).Limits[0].Policy; withoutDerived(got) != tc.want {
			t.Errorf("policy of %s = %+v, want %+v", tc.fields, got, tc.want)
		}
	}
}

func TestZeroLimitInEveryAlgorithm(t *testing.T) {
	for _, algorithm := range rules.AlgorithmNames() {
		p := load(t, Options{}, limited("unit: year, requests_per_unit: 0, name: n, algorithm: "+algorithm)).Limits[0].Policy
		if p.Limit != 0 || p.Algorithm == limiter.TokenBucket && p.Burst != 1 {
			t.Errorf("policy of %s = %+v, want no limit and the least burst", algorithm, p)
		}
	}
}

func TestOverrideKeepsCounter(t *testing.T) {
	for _, algorithm := range rules.AlgorithmNames() {
		s := load(t, Options{}, limited("unit: minute, requests_per_unit: 60, name: n, algorithm: "+algorithm))
		if id(t, s, "d", desc("k", "x")) != id(t, s, "d", desc("k", "x").limit(5, 2, 0)) {
			t.Errorf("%s: an override of the same window has another counter", algorithm)
		}
		if id(t, s, "d", desc("k", "x")) == id(t, s, "d", desc("k", "x").limit(5, 3, 0)) {
			t.Errorf("%s: an override of another window has the same counter", algorithm)
		}
		others := map[string]string{"token_bucket": ", burst: 3", "leaky_bucket": ", slack: 3, max_wait: 1s, max_waiting: 1"}[algorithm]
		edited := load(t, Options{}, limited("unit: second, unit_multiplier: 60, requests_per_unit: 5, name: m, algorithm: "+algorithm+others))
		if id(t, s, "d", desc("k", "x")) != id(t, edited, "d", desc("k", "x")) {
			t.Errorf("%s: a limit with other numbers has another counter", algorithm)
		}
	}
}

func TestAlgorithmLabels(t *testing.T) {
	s := load(t, Options{}, `
domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: minute, requests_per_unit: 60}
      - {unit: minute, requests_per_unit: 60, algorithm: token_bucket}
      - {unit: hour, requests_per_unit: 60, algorithm: sliding_window}
      - {unit: hour, requests_per_unit: 60, algorithm: sliding_window, sub_windows: 5}
      - {unit: day, requests_per_unit: 60, algorithm: leaky_bucket}
      - {unit: day, requests_per_unit: 60, algorithm: concurrency, name: streams}
      - {unit: day, requests_per_unit: 50, algorithm: concurrency, name: fewer, shadow: true}
  - key: names
    rate_limits:
      - {unit: minute, requests_per_unit: 60, name: n}
      - {unit: minute, requests_per_unit: 60, name: n, algorithm: token_bucket}
      - {unit: hour, requests_per_unit: 60, name: m}
      - {unit: day, requests_per_unit: 60, name: m, algorithm: token_bucket}
      - {unit: day, requests_per_unit: 60, name: m, algorithm: leaky_bucket}
  - {key: single, rate_limit: {unit: minute, requests_per_unit: 60, name: n}}
  - key: numbers
    rate_limits:
      - {unit: minute, requests_per_unit: 60, name: n}
      - {unit: hour, requests_per_unit: 60, name: n}
      - {unit: day, requests_per_unit: 60, name: "n 60/hour"}
      - {unit: minute, requests_per_unit: 60, unit_multiplier: 10}
`)
	var got []string
	for _, l := range s.Limits {
		got = append(got, l.Label)
	}
	want := []string{
		"60/minute", "60/minute #2", "60/hour", "60/hour #4", "60/day", "streams", "fewer shadow",
		"n", "n #2", "m", "m #4", "m #5",
		"", "n", "n #2", "n 60/hour", "60/10minute",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

const allAlgorithms = `
domain: d
max_counters: 1000
descriptors:
  - {key: fixed, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: fixed_window}}
  - {key: ring, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: sliding_window, sub_windows: 1}}
  - {key: log, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: sliding_log, count_refused: true}}
  - {key: token, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: token_bucket, unit_multiplier: 2}}
  - {key: leaky, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: leaky_bucket, slack: 0}}
  - {key: held, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: leaky_bucket, max_wait: 1500ms}}
  - {key: permits, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: concurrency, unit_multiplier: 2, name: streams}}
  - {key: tokens, rate_limit: {unit: minute, requests_per_unit: 60, name: tokens, reserve: {amount: 20, unsettled: release}}}
  - {key: learnt, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: token_bucket, name: learnt, reserve: {p90: true, first: 20, ttl: 5m}}}
  - {key: jail, rate_limit: {unit: minute, requests_per_unit: 60, penalty: [90s, 2m, 36h]}}
  - {key: free, rate_limit: {unlimited: true}}
`

func TestAlgorithmTexts(t *testing.T) {
	s := load(t, Options{}, allAlgorithms)
	var got []string
	for _, l := range s.Limits {
		got = append(got, l.String())
	}
	want := []string{
		"60/minute",
		"60/minute, algorithm: sliding_window, sub_windows: 1",
		"60/minute, algorithm: sliding_log, count_refused: true",
		"60/2minute, algorithm: token_bucket, burst: 60",
		"60/minute, algorithm: leaky_bucket, slack: 0, max_wait: 0s, max_waiting: 100",
		"60/minute, algorithm: leaky_bucket, slack: 10, max_wait: 1.5s, max_waiting: 100",
		"60 concurrent requests, each for at most 2 minutes",
		"60/minute, reserve: { amount: 20, ttl: 1m0s, unsettled: release }",
		"60/minute, algorithm: token_bucket, burst: 60, reserve: { p90: true, first: 20, ttl: 5m0s, unsettled: keep }",
		"60/minute, penalty: [1m30s, 2m, 36h]",
		"unlimited",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("String (-want +got):\n%s", diff)
	}
	for entries, want := range map[string]string{
		"fixed=1":   "limit: 60/minute, algorithm: fixed_window, count_refused: true, at ",
		"log=1":     "limit: 60/minute, algorithm: sliding_log, count_refused: true, at ",
		"permits=1": "limit: 60 concurrent requests, each for at most 2 minutes, name: \"streams\", at ",
		"tokens=1":  "limit: 60/minute, algorithm: fixed_window, count_refused: true, reserve: { amount: 20, ttl: 1m0s, unsettled: release }, name: \"tokens\", at ",
		"held=1":    "limit: 60/minute, algorithm: leaky_bucket, slack: 10, max_wait: 1.5s, max_waiting: 100, at ",
	} {
		if got := s.Explain("d", parseEntries(entries)).String(); !strings.Contains(got, want) {
			t.Errorf("Explain(%s) = %s, want %q in it", entries, got, want)
		}
	}
	p := plan(s, Global{}, desc("token", "").limit(6, 2, 0))
	if got, want := p.Limits[0].String(), "6/minute, algorithm: token_bucket, burst: 6"; got != want {
		t.Errorf("String of an override = %q, want %q", got, want)
	}
}

func TestDumpAlgorithms(t *testing.T) {
	const want = `d.fixed: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false, max_counters: 1000
d.ring: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false, algorithm: sliding_window, sub_windows: 1, max_counters: 1000
d.log: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false, algorithm: sliding_log, count_refused: true, max_counters: 1000
d.token: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false, unit_multiplier: 2, algorithm: token_bucket, burst: 60, max_counters: 1000
d.leaky: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false, algorithm: leaky_bucket, slack: 0, max_wait: 0s, max_waiting: 100, max_counters: 1000
d.held: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false, algorithm: leaky_bucket, slack: 10, max_wait: 1.5s, max_waiting: 100, max_counters: 1000
d.permits: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false, unit_multiplier: 2, algorithm: concurrency, max_counters: 1000
d.tokens: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false, reserve: { amount: 20, ttl: 1m0s, unsettled: release }, max_counters: 1000
d.learnt: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false, algorithm: token_bucket, burst: 60, reserve: { p90: true, first: 20, ttl: 5m0s, unsettled: keep }, max_counters: 1000
d.jail: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false, penalty: [1m30s, 2m, 36h], max_counters: 1000
d.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, unlimited: true, max_counters: 1000
`
	var got strings.Builder
	must.OK(t, load(t, Options{}, allAlgorithms).Dump(&got))
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("Dump (-want +got):\n%s", diff)
	}
}

func TestBucketAdvice(t *testing.T) {
	for fields, want := range map[string]bool{
		"unit: hour, requests_per_unit: 1, algorithm: token_bucket, burst: 23":                     false,
		"unit: hour, requests_per_unit: 1, penalty: [2m, 23h]":                                     false,
		"unit: hour, requests_per_unit: 1, penalty: [2m, 24h]":                                     true,
		"unit: hour, requests_per_unit: 1, algorithm: token_bucket, burst: 24":                     true,
		"unit: day, requests_per_unit: 24, algorithm: token_bucket, burst: 23":                     false,
		"unit: hour, requests_per_unit: 1, algorithm: leaky_bucket, slack: 22":                     false,
		"unit: hour, requests_per_unit: 1, algorithm: leaky_bucket, slack: 23":                     true,
		"unit: day, requests_per_unit: 1, algorithm: sliding_window":                               true,
		"unit: hour, requests_per_unit: 1, algorithm: sliding_log":                                 false,
		"unit: day, requests_per_unit: 0, algorithm: token_bucket":                                 true,
		"unit: second, requests_per_unit: 4294967295, algorithm: token_bucket, burst: 1":           false,
		"unit: year, unit_multiplier: 10, requests_per_unit: 1, algorithm: leaky_bucket, slack: 2": true,
	} {
		if ds := Advice(load(t, Options{}, limited(fields)), false); (len(ds) == 1) != want {
			t.Errorf("Advice(%s) = %v, want a warning %v", fields, ds, want)
		}
	}
}

func TestMaxCounters(t *testing.T) {
	file := func(domain, root string) string { return "domain: " + domain + root + "\ndescriptors: []" }
	for _, tc := range []struct {
		name  string
		files []string
		want  int64
		warn  string
	}{
		{"none", []string{file("d", "")}, 0, ""},
		{"one", []string{file("d", "\nmax_counters: 5")}, 5, ""},
		{"the greatest", []string{file("d", "\nmax_counters: 4294967295")}, 1<<32 - 1, ""},
		{"only in one of two files", []string{"domain: d", file("d", "\nmax_counters: 5")}, 5, ""},
		{"the same in both files", []string{file("d", "\nmax_counters: 5"), file("d", "\nmax_counters: 5")}, 5, ""},
		{
			"different in two files",
			[]string{file("d", "\nmax_counters: 9"), "domain: d", "# moved\n" + file("d", "\nmax_counters: 5"), file("d", "\nmax_counters: 7"), file("d", "\nmax_counters: 5")},
			5, `c.yaml:2:1: warning: differ: domain "d": the files of this domain differ in max_counters; the smallest, 5, applies`,
		},
		{
			"the smaller number first",
			[]string{file("d", "\nmax_counters: 5"), file("d", "\nmax_counters: 9")},
			5, `a.yaml:1:1: warning: differ: domain "d": the files of this domain differ in max_counters; the smallest, 5, applies`,
		},
	} {
		s, ds := compile(t, Options{MergeDomains: true}, append(tc.files, file("e", "\nmax_counters: 77"))...)
		if s == nil {
			t.Fatalf("%s: %v", tc.name, ds)
		}
		var got string
		if len(ds) > 0 {
			got = ds[0].String()
		}
		if got != tc.warn || len(ds) > 1 {
			t.Errorf("%s: diagnostics %v, want %q", tc.name, ds, tc.warn)
		}
		if got := s.MaxCounters("d"); got != tc.want {
			t.Errorf("%s: MaxCounters = %d, want %d", tc.name, got, tc.want)
		}
		if got := s.MaxCounters("f"); got != 0 {
			t.Errorf("%s: MaxCounters of a domain that is not configured = %d, want 0", tc.name, got)
		}
	}
}

func TestDomainIndex(t *testing.T) {
	s := load(t, Options{}, "domain: c", "domain: a", "domain: b")
	p := &Plan{}
	for _, name := range []string{"b", "a", "c"} {
		s.Plan(p, &Request{Domain: []byte(name)}, Global{})
		if p.DomainIndex < 0 || s.Domains()[p.DomainIndex] != name {
			t.Errorf("DomainIndex of %s = %d in %v", name, p.DomainIndex, s.Domains())
		}
	}
	s.Plan(p, &Request{Domain: []byte("x")}, Global{})
	if p.DomainIndex != -1 {
		t.Errorf("DomainIndex of an unknown domain = %d, want -1", p.DomainIndex)
	}
}

// withoutDerived returns p without the values that are computed from its fields.
func withoutDerived(p limiter.Policy) limiter.Policy {
	return limiter.Policy{
		Algorithm: p.Algorithm, Limit: p.Limit, Window: p.Window, CountRefused: p.CountRefused,
		SubWindows: p.SubWindows, Burst: p.Burst, Slack: p.Slack, MaxWait: p.MaxWait, MaxWaiting: p.MaxWaiting,
	}
}
