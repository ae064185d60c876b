package descriptors

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// concurrent returns a concurrency limit with the given name.
func concurrent(name string) string {
	return "{unit: minute, unit_multiplier: 10, requests_per_unit: 5, algorithm: concurrency, name: '" + name + "'}"
}

func TestLeaseNameErrors(t *testing.T) {
	const lost = `of two leases with the same name in the dynamic metadata, one is lost; choose another`
	for _, tc := range []struct {
		name, rules string
		want        []string
	}{
		{"one", "- {key: a, rate_limit: " + concurrent("streams") + "}", nil},
		{"none", "- {key: a, rate_limit: " + concurrent("") + "}", []string{
			`a.yaml:3:24: error: domain "d" > key "a" > rate_limit: "name" is missing: Envoy returns the lease that it finds under the limit's name in the dynamic metadata; add one, such as "name: streams"`,
		}},
		{"two rules", "- {key: a, rate_limit: " + concurrent("n") + "}\n- {key: b, rate_limits: [{unit: day, requests_per_unit: 1},\n  " + concurrent("n") + "]}", []string{
			`a.yaml:5:3: error: domain "d" > key "b" > rate_limits[1]: name "n" is also that of domain "d" > key "a" > rate_limit at a.yaml:3:24: ` + lost,
		}},
		{"a limit and its candidate", "- {key: a, rate_limits: [" + concurrent("n") + ",\n  {shadow: true, " + concurrent("n")[1:] + "]}", []string{
			`a.yaml:4:3: error: domain "d" > key "a" > rate_limits[1]: name "n" is also that of domain "d" > key "a" > rate_limits[0] at a.yaml:3:26: ` + lost,
		}},
		{"the name of a limit without leases", "- {key: a, rate_limit: " + concurrent("n") + "}\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1, name: n}}", nil},
		{"a name of the metadata", "- {key: a, rate_limit: " + concurrent("sluice") + "}\n- {key: b, rate_limit: " + concurrent("descriptors") + "}", []string{
			`a.yaml:3:24: error: domain "d" > key "a" > rate_limit: name "sluice" is reserved: the dynamic metadata uses it for other data (domain, descriptors, hitsAddend, metadata, sluice, denied_by, soft); choose another`,
			`a.yaml:4:24: error: domain "d" > key "b" > rate_limit: name "descriptors" is reserved: the dynamic metadata uses it for other data (domain, descriptors, hitsAddend, metadata, sluice, denied_by, soft); choose another`,
		}},
		{"a second lease", "- {key: a, rate_limit: " + concurrent("n.2") + "}\n- {key: b, rate_limit: " + concurrent("n") + "}\n- {key: c, rate_limit: " + concurrent("n.1") + "}\n- {key: d, rate_limit: " + concurrent("m.2") + "}\n" +
			"- {key: e, rate_limit: " + concurrent("n.10") + "}\n- {key: f, rate_limit: " + concurrent("n.02") + "}", []string{
			`a.yaml:3:24: error: domain "d" > key "a" > rate_limit: name "n.2" is reserved for a second lease of "n" (domain "d" > key "b" > rate_limit at a.yaml:4:24) in one request; choose one that does not end in a dot and a number`,
			`a.yaml:7:24: error: domain "d" > key "e" > rate_limit: name "n.10" is reserved for a second lease of "n" (domain "d" > key "b" > rate_limit at a.yaml:4:24) in one request; choose one that does not end in a dot and a number`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, ds := compile(t, Options{}, "domain: d\ndescriptors:\n"+tc.rules)
			got := lines(ds)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
			if (s == nil) != (tc.want != nil) {
				t.Errorf("set %v with %v", s, ds)
			}
		})
	}
}

// TestUnusualLeaseNames checks names as a management server may send them.
func TestUnusualLeaseNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"streams": true, "per-user_2": true, "größe": true, "a/b.c": true, "{}": true, "[0]": true, "%": false,
		"a b": false, "a:b": false, "a(b": false, "a)b": false, `a"b`: false, "a\tb": false, "a\x00b": false, "a\u00a0b": false, strings.Repeat("n", 5000): true,
	} {
		_, ds := Compile([]rules.Config{{Domain: "d", Descriptors: []rules.Descriptor{{Key: "k", RateLimits: []rules.Limit{{
			DefaultFields: rules.DefaultFields{Algorithm: limiter.Concurrency}, Unit: rules.Minute, UnitMultiplier: 1, RequestsPerUnit: 1, Name: name,
		}}}}}}, Options{})
		if got := !ds.HasErrors(); got != ok {
			t.Errorf("name %.20q is allowed: %v, want %v: %v", name, got, ok, ds)
		}
		if !ok && !strings.Contains(ds[0].Message, "cannot be used in Envoy's %DYNAMIC_METADATA(...)%: remove spaces and") {
			t.Errorf("name %.20q: %v", name, ds)
		}
	}
}

func TestDefaultsGrantLeasesToUnnamedRules(t *testing.T) {
	const three = "domain: shop\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}\n" +
		"- {key: b, rate_limit: {unit: hour, requests_per_unit: 5}}\n- {key: c, rate_limit: {unit: hour, requests_per_unit: 5, name: streams}}"
	s, ds := compileWith(t, three, "domain: '*'\ndefaults:\n- rate_limit: {algorithm: concurrency}")
	want := []string{`defaults.yaml:3:3: error: domain "*" > defaults[0]: the rule domain "shop" > key "a" > rate_limit at rules.yaml:3:24 does not support these fields: ` +
		`"name" is missing: Envoy returns the lease that it finds under the limit's name in the dynamic metadata; add one, such as "name: streams"; change the fields, or add an item for this rule`}
	if diff := cmp.Diff(want, lines(ds)); diff != "" || s != nil {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
	s, ds = compileWith(t, three, "domain: shop\ndefaults:\n- {path: [{key: b}], rate_limit: {algorithm: concurrency, name: reports}}\n"+
		"- {path: [{key: c}], rate_limit: {algorithm: concurrency, name: reports}}")
	if len(ds) > 0 || s.Limits[1].Name != "reports" || s.Limits[2].Name != "streams" { // the rule's own name
		t.Errorf("diagnostics %v, want none: %v", ds, s)
	}
	want = []string{`defaults.yaml:3:3: error: domain "shop" > defaults[0]: "name" in rate_limit is for one rule, so the item needs a "path"`}
	if s, ds = compileWith(t, three, "domain: shop\ndefaults:\n- rate_limit: {name: streams}"); s != nil || !cmp.Equal(want, lines(ds)) {
		t.Errorf("diagnostics (-want +got):\n%s", cmp.Diff(want, lines(ds)))
	}
	s, ds = compileWith(t, three, "domain: shop\ndefaults:\n- {name: streams, rate_limit: {algorithm: concurrency, unit_multiplier: 2}}")
	if len(ds) > 0 || s.Limits[2].String() != "5 concurrent requests, each for at most 2 hours" {
		t.Errorf("diagnostics %v, want none: %v", ds, s)
	}
}

func TestLeaseAdvice(t *testing.T) {
	limit := func(fields string) string {
		return "domain: d\ndescriptors:\n- {key: k, rate_limit: {algorithm: concurrency, name: n, " + fields + "}}"
	}
	reserve := func(fields string) string {
		return "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: 1000, name: n, reserve: {" + fields + "}}}"
	}
	for _, tc := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"no warning", []string{limit("unit: minute, unit_multiplier: 10, requests_per_unit: 5")}, nil},
		{"a day", []string{limit("unit: day, requests_per_unit: 5")}, nil},
		{"two domains", []string{limit("unit: hour, requests_per_unit: 5"), strings.Replace(limit("unit: hour, requests_per_unit: 5"), "domain: d", "domain: e", 1)}, []string{
			`b.yaml:3:24: warning: leases: domain "e" > key "k": domain "d" at a.yaml:3:24 also has leases named "n": if a filter chain of Envoy has filters for both domains, ` +
				`the second overwrites the first's lease, which is then never released; choose another name`,
		}},
		{"a short window", []string{limit("unit: second, unit_multiplier: 59, requests_per_unit: 5")}, []string{
			`a.yaml:3:24: warning: leases: domain "d" > key "k": a permit is released after 59 seconds even if its request still runs, so more than 5 may run at once: make the window longer than the longest request`,
		}},
		{"a long window", []string{limit("unit: day, unit_multiplier: 2, requests_per_unit: 5")}, []string{
			`a.yaml:3:24: warning: leases: domain "d" > key "k": a permit that is never released, for example because Envoy crashed, stays held for 2 days: make the window only a little longer than the longest request`,
		}},
		{"a reserve", []string{reserve("amount: 500")}, nil},
		{"a reserve of more than half", []string{reserve("amount: 501")}, []string{
			`a.yaml:3:24: warning: leases: domain "d" > key "k": each request reserves 501 of 1000, so only one can run at a time: reserve less, or raise the limit`,
		}},
		{"a short ttl plus a window", []string{reserve("amount: 50, ttl: 5s")}, nil},
		{"a short ttl plus a short window", []string{strings.Replace(reserve("amount: 50, ttl: 5s"), "unit: hour", "unit: second", 1)}, []string{
			`a.yaml:3:24: warning: leases: domain "d" > key "k": a reservation expires after 6s even if its request still runs, so concurrent requests can exceed the limit: make ttl longer than the longest request`,
		}},
		{"a short ttl that releases", []string{reserve("p90: true, first: 50, ttl: 5s, unsettled: release")}, []string{
			`a.yaml:3:24: warning: leases: domain "d" > key "k": a reservation expires after 5s even if its request still runs, so concurrent requests can exceed the limit: make ttl longer than the longest request`,
		}},
		{"none", []string{limit("unit: hour, requests_per_unit: 0")}, []string{
			`a.yaml:3:24: warning: leases: domain "d" > key "k": 0 denies every request: set how many may run at once, or remove the limit`,
		}},
		{"evicted", []string{"max_counters: 100\n" + limit("unit: hour, requests_per_unit: 5")}, []string{
			`a.yaml:4:24: warning: leases: domain "d" > key "k": max_counters of the domain evicts the least used of more than 100 counters, with the leases of running requests: make it greater than the number of keys with concurrent requests`,
		}},
		{"acknowledged", []string{strings.Replace("max_counters: 100\n"+limit("unit: day, unit_multiplier: 2, requests_per_unit: 5"), "\n- ", "\n# sluice:allow leases\n- ", 1)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ds := Advice(load(t, Options{}, tc.files...), true)
			ds = slices.DeleteFunc(ds, func(d rules.Diagnostic) bool { return d.Code == rules.MaxCounters || d.Severity == rules.Note })
			if diff := cmp.Diff(tc.want, lines(ds)); diff != "" {
				t.Errorf("advice (-want +got):\n%s", diff)
			}
		})
	}
}

const leaseRules = `
domain: d
descriptors:
  - key: user
    rate_limits:
      - {unit: minute, unit_multiplier: 10, requests_per_unit: 5, algorithm: concurrency, name: streams}
      - {unit: minute, requests_per_unit: 60, name: calls}
      - {unit: minute, unit_multiplier: 10, requests_per_unit: 3, algorithm: concurrency, name: fewer, shadow: true}
  - key: bytes
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: second
    rate_limits:
      - {unit: minute, requests_per_unit: 60}
      - {unit: hour, requests_per_unit: 2, algorithm: concurrency, name: late}
  - key: partner
    rate_limit: {unit: minute, requests_per_unit: 9, replaces: [{name: streams}]}
  - key: trial
    rate_limits:
      - {unit: minute, requests_per_unit: 60}
      - {unit: minute, requests_per_unit: 3, algorithm: concurrency, name: trial, shadow: true}
`

// TestPlanLeases checks the hits of each charge: refunds are negative, and candidates are last.
func TestPlanLeases(t *testing.T) {
	const lease = limiter.FirstLease + 7<<16 + 3
	s := load(t, Options{}, leaseRules)
	for _, tc := range []struct {
		name   string
		descs  []Descriptor
		want   []int64
		leases []uint64 // by match
	}{
		{"a start", []Descriptor{desc("user", "a")}, []int64{1, 1, 1}, []uint64{0}},
		{"an end", []Descriptor{desc("user", "a").hits(lease).refund()}, []int64{-lease, 0, -lease}, []uint64{lease}},
		{"an end with positive hits", []Descriptor{desc("user", "a").hits(lease)}, []int64{-lease, 0, -lease}, []uint64{lease}},
		{"an end before the cost", []Descriptor{desc("user", "a").hits(lease), desc("user", "a").hits(900)}, []int64{-lease, 0, 0, 900, -lease, 0}, []uint64{lease, 0}},
		{"an end after the cost", []Descriptor{desc("user", "a").hits(900), desc("user", "a").hits(lease)}, []int64{0, 900, -lease, 0, 0, -lease}, []uint64{0, lease}},
		{"two ends", []Descriptor{desc("user", "a").hits(lease), desc("user", "b").hits(lease + 1)}, []int64{-lease, 0, -lease - 1, 0, -lease, -lease - 1}, []uint64{lease, lease + 1}},
		{"another refund", []Descriptor{desc("user", "a").hits(lease / 2).refund()}, []int64{0, -lease / 2, 0}, []uint64{0}},
		{"a cost without a lease", []Descriptor{desc("user", "a").hits(900)}, []int64{0, 900, 0}, []uint64{0}},
		{"a cost of one hit without a lease", []Descriptor{desc("trial", "a").hits(1)}, []int64{1, 0}, []uint64{0}},
		{"the maximum of hits", []Descriptor{desc("user", "a").hits(1<<64 - 1)}, []int64{1, 0, 1}, []uint64{1<<64 - 1}},
		{"a rule without leases", []Descriptor{desc("bytes", "a").hits(lease)}, []int64{lease}, []uint64{0}},
		{"an end and a rule without leases", []Descriptor{desc("user", "a").hits(lease), desc("bytes", "a").hits(lease).refund()}, []int64{-lease, 0, -lease, -lease}, []uint64{lease, 0}},
		{"an end and another rule with leases", []Descriptor{desc("user", "a").hits(lease), desc("second", "a")}, []int64{-lease, 0, 1, 1, -lease}, []uint64{lease, 0}},
		{"a start on a replaced limit", []Descriptor{desc("user", "a"), desc("partner", "p")}, []int64{1, 1, 1}, []uint64{0, 0}},
		{"an end on a replaced limit", []Descriptor{desc("user", "a").hits(lease), desc("partner", "p").hits(0)}, []int64{0, 0, -lease}, []uint64{lease, 0}},
		{"a start with an override", []Descriptor{desc("user", "a").limit(2, 3, 0)}, []int64{1}, []uint64{0}},
		{"an end with an override", []Descriptor{desc("user", "a").hits(lease).limit(2, 3, 0)}, []int64{-lease}, []uint64{lease}},
		{"an end with an override of another rule with leases", []Descriptor{desc("second", "a").hits(lease).limit(2, 3, 0)}, []int64{0}, []uint64{lease}},
		{"a candidate alone", []Descriptor{desc("trial", "a").hits(lease)}, []int64{0, -lease}, []uint64{lease}},
	} {
		p := plan(s, Global{}, tc.descs...)
		var got []int64
		for _, c := range p.Batch.Charges {
			n := int64(c.Hits)
			if c.Refund {
				n = -n
			}
			got = append(got, n)
		}
		var leases []uint64
		for i := range p.Matches {
			leases = append(leases, p.Matches[i].Lease)
		}
		if !slices.Equal(got, tc.want) || !slices.Equal(leases, tc.leases) {
			t.Errorf("%s: charges %v of leases %v, want %v of %v", tc.name, got, leases, tc.want, tc.leases)
		}
	}
}

// TestLeasesAreNamedAfterLimits checks the names of the leases in the responses.
func TestLeasesAreNamedAfterLimits(t *testing.T) {
	s := load(t, Options{}, leaseRules)
	table, err := limiter.New(limiter.Options{})
	must.OK(t, err)
	now := limiter.Time(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC).UnixNano())
	for _, tc := range []struct {
		name  string
		descs []Descriptor
		want  []string
	}{
		{"a limit and its candidate", []Descriptor{desc("user", "a")}, []string{"streams 1", "fewer 1"}},
		{"two descriptors of one rule", []Descriptor{desc("user", "b"), desc("user", "c")}, []string{"streams 1", "fewer 1", "streams 2", "fewer 2"}},
		{"two rules", []Descriptor{desc("user", "d"), desc("second", "d")}, []string{"streams 1", "fewer 1", "late 1"}},
		{"an override", []Descriptor{desc("user", "e").limit(2, 3, 0)}, []string{"streams 1"}},
		{"an override of a rule without leases", []Descriptor{desc("second", "e").limit(2, 3, 0)}, nil},
		{"a peek", []Descriptor{desc("user", "f").hits(0)}, nil},
		{"after a peek", []Descriptor{desc("user", "f").hits(0), desc("user", "h")}, []string{"streams 2", "fewer 2"}},
		{"after an end", []Descriptor{desc("user", "f").hits(FirstLease + 5), desc("second", "h"), desc("second", "i")}, []string{"late 1", "late 2"}},
		{"after an override", []Descriptor{desc("user", "i").limit(2, 3, 0), desc("user", "j")}, []string{"streams 1", "streams 2", "fewer 1"}},
		{"denied", []Descriptor{desc("user", "g").limit(0, 3, 0), desc("second", "g")}, nil},
		{"none", []Descriptor{desc("bytes", "g")}, nil},
	} {
		p := plan(s, Global{}, tc.descs...)
		table.Decide(now, &p.Batch)
		var got []string
		for _, lease := range p.NamedLeases() {
			name, nth := lease.Limit, lease.Nth
			got = append(got, fmt.Sprintf("%s %d", name, nth))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: leases %q, want %q", tc.name, got, tc.want)
		}
	}
}
