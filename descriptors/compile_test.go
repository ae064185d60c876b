package descriptors

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

func TestCompileDiagnostics(t *testing.T) {
	const limit = "rate_limit: {unit: hour, requests_per_unit: 1}"
	for _, tc := range []struct {
		name  string
		merge bool
		files []string
		want  []string
	}{
		{
			name:  "duplicate domain",
			files: []string{"domain: d", "domain: e", "domain: d"},
			want:  []string{`c.yaml:1:1: error: domain "d": duplicate domain, first at a.yaml:1:1; merge the two, or set --merge-domains`},
		},
		{
			name:  "merged domain",
			merge: true,
			files: []string{"domain: d\ndescriptors: [{key: a}]", "domain: d\ndescriptors: [{key: b}]"},
		},
		{
			name:  "duplicate over merged files",
			merge: true,
			files: []string{"domain: d\ndescriptors: [{key: a, value: x}]", "domain: d\ndescriptors:\n- {key: a}\n- {key: a, value: x}"},
			want:  []string{`b.yaml:4:3: error: domain "d" > key "a" value "x": duplicate key and value on this level; first at a.yaml:2:15`},
		},
		{
			name: "all duplicates on deeper levels",
			files: []string{`domain: d
descriptors:
  - key: a
    descriptors:
      - key: b
        value: x*
      - key: b
        value: x*
      - key: b
      - key: b
  - key: b
    value: x*
`},
			want: []string{
				`a.yaml:7:9: error: domain "d" > key "a" > key "b" value "x*": duplicate key and value on this level; first at a.yaml:5:9`,
				`a.yaml:10:9: error: domain "d" > key "a" > key "b": duplicate key and value on this level; first at a.yaml:9:9`,
			},
		},
		{
			name:  "different positions of an underscore",
			files: []string{"domain: d\ndescriptors: [{key: a_b}, {key: a, value: b}]"},
		},
		{
			name: "replaces an unknown name",
			files: []string{
				"domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: n}]}}",
				"domain: e\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 1, name: n}}",
			},
			want: []string{`a.yaml:3:24: warning: replaces-none: domain "d" > key "a" > rate_limit: replaces "n", but no limit of the domain has that name`},
		},
		{
			name: "replaces a name of another domain",
			files: []string{
				"domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: n}]}}\n" +
					"- {key: b, rate_limit: {unit: hour, requests_per_unit: 1, name: n}}",
				"domain: e\ndescriptors: [{key: a, " + limit + "}]",
			},
		},
		{
			name: "limits that replace each other",
			files: []string{`domain: d
descriptors:
- {key: a, rate_limit: {name: la, replaces: [{name: lb}], unit: hour, requests_per_unit: 0}}
- {key: b, rate_limits: [{name: lb, replaces: [{name: la}], unit: hour, requests_per_unit: 0}]}
- {key: c, rate_limit: {name: lc, replaces: [{name: la}], unit: hour, requests_per_unit: 0}}
`},
			want: []string{`a.yaml:4:26: warning: replaces-mutual: domain "d" > key "b" > rate_limits[0]: this limit and "la" at a.yaml:3:24 replace each other; a request that matches both is limited by neither`},
		},
		{name: "a plain file", files: []string{"domain: d\ndescriptors: [{key: a, " + limit + "}]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, ds := compile(t, Options{MergeDomains: tc.merge}, tc.files...)
			var got []string
			for _, d := range ds {
				got = append(got, d.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
			if (s == nil) != ds.HasErrors() {
				t.Errorf("set = %v with %d diagnostics, want a set unless there are errors", s, len(ds))
			}
		})
	}
}

func TestCompileChecksDescriptors(t *testing.T) {
	hour := rules.Limit{Unit: rules.Hour, UnitMultiplier: 1, RequestsPerUnit: 1}
	with := func(change func(l *rules.Limit)) []rules.Limit {
		l := hour
		change(&l)
		return []rules.Limit{l}
	}
	candidate := with(func(l *rules.Limit) { l.Shadow = true })[0]
	bucket := with(func(l *rules.Limit) { l.Algorithm = limiter.TokenBucket })[0]
	for _, tc := range []struct {
		desc rules.Descriptor
		want string
	}{
		{rules.Descriptor{}, "the key is missing or empty"},
		{rules.Descriptor{Key: "k", Value: "v", ShareThreshold: true}, `"share_threshold" requires a "*"`},
		{rules.Descriptor{Key: "k", RateLimits: with(func(l *rules.Limit) { l.Unit = 0 })}, "unknown unit 0"},
		{rules.Descriptor{Key: "k", RateLimits: with(func(l *rules.Limit) { l.Unit = 8 })}, "unknown unit 8"},
		{rules.Descriptor{Key: "k", RateLimits: with(func(l *rules.Limit) { l.UnitMultiplier = 0 })}, "a window of 0 hours is out of range"},
		{rules.Descriptor{Key: "k", RateLimits: with(func(l *rules.Limit) { l.UnitMultiplier = 87601 })}, "is 87600"},
		{rules.Descriptor{Key: "k", RateLimits: with(func(l *rules.Limit) { l.Name, l.Replaces = "n", []string{"n"} })}, "cannot replace itself"},
		{rules.Descriptor{Key: "k", RateLimits: with(func(l *rules.Limit) { l.Replaces = []string{""} })}, "has no name"},
		{rules.Descriptor{Key: "k", List: true, RateLimits: []rules.Limit{hour, {Unit: rules.Minute, UnitMultiplier: 60}}}, "the same algorithm and window, the first at an unknown place; only the lower would apply"},
		{rules.Descriptor{Key: "k", List: true, RateLimits: []rules.Limit{hour, candidate, candidate}}, "they would share a counter; try one after the other"},
		{rules.Descriptor{Key: "k", List: true, RateLimits: []rules.Limit{bucket, bucket}}, "give one of them another window"},
		{rules.Descriptor{Key: "k", List: true, RateLimits: []rules.Limit{candidate}}, `"shadow: true" is for items of "rate_limits"`},
		{rules.Descriptor{Key: "k", List: true, RateLimits: []rules.Limit{hour, {Unlimited: true}}}, "must be the only limit of its list"},
	} {
		s, ds := Compile([]rules.Config{{Domain: "d", Descriptors: []rules.Descriptor{tc.desc}}}, Options{})
		if s != nil || ds.Err() == nil || !strings.Contains(ds.Err().Error(), tc.want) {
			t.Errorf("Compile(%+v) = %v, %v, want %q", tc.desc, s, ds, tc.want)
		}
	}
	if s, ds := Compile([]rules.Config{{}}, Options{}); s != nil || !ds.HasErrors() {
		t.Errorf("Compile of an empty domain = %v, %v, want an error", s, ds)
	}
}

func TestCountRefusedByDefault(t *testing.T) {
	for _, tc := range []struct {
		root, limits string
		opt          Options
		want         []bool
	}{
		{"", "rate_limit: {unit: hour}", Options{}, []bool{true}},
		{"", "rate_limit: {unit: hour, count_refused: false}", Options{}, []bool{false}},
		{"", "rate_limits: [{unit: hour}]", Options{}, []bool{true}},
		{"", "rate_limits: [{unit: hour}, {unit: day}]", Options{}, []bool{false, false}},
		{"", "rate_limits: [{unit: hour}, {unit: day, count_refused: true}]", Options{}, []bool{false, true}},
		{"all_or_nothing: true", "rate_limit: {unit: hour}", Options{}, []bool{false}},
		{"all_or_nothing: true", "rate_limit: {unit: hour, count_refused: true}", Options{}, []bool{true}},
		{"", "rate_limit: {unit: hour}", Options{AllOrNothing: true}, []bool{false}},
		{"all_or_nothing: false", "rate_limit: {unit: hour}", Options{AllOrNothing: true}, []bool{false}},
	} {
		s := load(t, tc.opt, "domain: d\n"+tc.root+"\ndescriptors:\n- key: k\n  "+tc.limits)
		var got []bool
		for _, l := range s.Limits {
			got = append(got, l.Policy.CountRefused)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("count_refused of %s %s %+v (-want +got):\n%s", tc.root, tc.limits, tc.opt, diff)
		}
	}
}

func TestAllOrNothingAppliesToMergedDomain(t *testing.T) {
	a := "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour}}]"
	b := "domain: d\nall_or_nothing: true\ndescriptors: [{key: b, rate_limit: {unit: hour}}]"
	for _, files := range [][]string{{a, b}, {b, a}} {
		s := load(t, Options{MergeDomains: true}, files...)
		p := plan(s, Global{}, desc("a", ""), desc("b", ""))
		for i, c := range p.Batch.Charges {
			if c.Group != 0 || c.Policy.CountRefused {
				t.Errorf("Charges[%d] = %+v, want group 0 and denied hits not counted", i, c)
			}
		}
	}
}

func TestMergedWildcardsKeepFileOrder(t *testing.T) {
	a := "domain: d\ndescriptors: [{key: w, value: a*, rate_limit: {unit: hour, requests_per_unit: 1}}]"
	b := "domain: d\ndescriptors: [{key: w, value: ab*, rate_limit: {unit: hour, requests_per_unit: 2}}]"
	for i, files := range [][]string{{a, b}, {b, a}} {
		p := plan(load(t, Options{MergeDomains: true}, files...), Global{}, desc("w", "abc"))
		if got, want := p.Limits[0].RequestsPerUnit, uint32(i+1); got != want {
			t.Errorf("order %d: limit %d, want %d", i, got, want)
		}
	}
}

// TestReportingFollowsTheFile checks the order of soft limits: that of the files, wherever the limits
// of a descriptor stand.
func TestReportingFollowsTheFile(t *testing.T) {
	soft := func(name string) string { return "{unit: hour, requests_per_unit: 1, soft: true, name: " + name + "}" }
	s := load(t, Options{MergeDomains: true}, `
domain: d
descriptors:
  - key: a
    descriptors:
      - key: b
        descriptors: [{key: c, rate_limit: `+soft("first")+`}]
        rate_limit: `+soft("second")+`
      - key: d
        rate_limits: [`+soft("third")+`]
        descriptors: [{key: e, rate_limit: `+soft("fourth")+`}]
    rate_limits: [`+soft("fifth")+`]
  - {key: f, rate_limit: `+soft("sixth")+`}`, `
domain: d
descriptors:
  - {key: g, descriptors: [{key: h, rate_limit: `+soft("seventh")+`}], rate_limit: `+soft("eighth")+"}")
	var got []string
	for _, l := range s.Reporting("d") {
		got = append(got, l.Name)
	}
	want := []string{"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("soft limits (-want +got):\n%s", diff)
	}
}

func TestSetNamesAndIndexes(t *testing.T) {
	s := load(t, Options{}, "domain: b", "domain: a\ndescriptors: [{key: k, rate_limit: {unit: hour}}, {key: j, rate_limit: {unlimited: true, name: n}}]")
	if diff := cmp.Diff([]string{"a", "b"}, s.Domains()); diff != "" || s.Empty() {
		t.Errorf("Empty %v, Domains (-want +got):\n%s", s.Empty(), diff)
	}
	for i, l := range s.Limits {
		if int(l.Index) != i || l.Rule == nil || l.Rule.Domain() != "a" {
			t.Errorf("Limits[%d] = %+v", i, l)
		}
	}
	if l := s.Limits[1]; !l.Rule.Unlimited || l.Name != "n" || l.Rule.Path() != "j" {
		t.Errorf("unlimited limit = %+v of %+v", l, l.Rule)
	}
	if s := load(t, Options{}); !s.Empty() || len(s.Domains()) != 0 {
		t.Errorf("set of no configurations = %+v, want an empty one", s)
	}
}

func TestHash(t *testing.T) {
	const file = "domain: d\ndescriptors: [{key: a, metadata: {x: 1, y: [b]}, rate_limit: {unit: hour, requests_per_unit: 1, name: n, replaces: [{name: m}]}}]"
	want := load(t, Options{}, file).Hash
	if len(want) != 16 {
		t.Errorf("Hash = %s, want 16 digits", want)
	}
	for _, same := range []string{
		"# moved\n\n" + file,
		strings.Replace(file, "unit: 1,", "unit: 1, algorithm: fixed_window, unit_multiplier: 1,", 1),
		"all_or_nothing: false\n" + file,
	} {
		if got := load(t, Options{}, same).Hash; got != want {
			t.Errorf("Hash = %s of %q, want %s as of %q", got, same, want, file)
		}
	}
	if got := load(t, Options{AllOrNothing: true, HashKey: identity.Key{1}}, file).Hash; got != want {
		t.Errorf("Hash = %s with options, want %s: options are not part of the rules", got, want)
	}
	for _, change := range []string{
		"hour|day", "unit: 1,|unit: 2,", "key: a|key: b", "key: a|key: a, value: a", "x: 1|x: 2", "x: 1|x: .inf", "[b]|[c]", "name: n|name: q",
		"name: m|name: o", "key: a|key: a, shadow_mode: true", "key: a|key: a, quota_mode: true", "key: a|key: a, detailed_metric: true",
		"unit: 1,|unit: 1, count_refused: false,", "unit: 1,|unit: 1, unit_multiplier: 2,", "unit: 1,|unit: 1, algorithm: sliding_log,",
		"unit: 1,|unit: 1, algorithm: sliding_window, sub_windows: 9,", "unit: 1,|unit: 1, algorithm: leaky_bucket, max_wait: 1s,",
		"domain: d|domain: d\nall_or_nothing: true", "domain: d|domain: d\nmax_counters: 5", "domain: d|domain: e", "}]|}, {key: z}]",
	} {
		old, replacement, _ := strings.Cut(change, "|")
		i := strings.LastIndex(file, old)
		if got := load(t, Options{}, file[:i]+replacement+file[i+len(old):]).Hash; got == want {
			t.Errorf("Hash does not change with %q", change)
		}
	}
}

// TestHashIgnoresOrder checks that the order of descriptors changes the hash only if they have
// wildcards.
func TestHashIgnoresOrder(t *testing.T) {
	file := func(domain, value string) string {
		return "domain: " + domain + "\ndescriptors: [{key: k, value: '" + value + "', descriptors: [{key: z, rate_limit: {unit: hour, requests_per_unit: 1}}]}]"
	}
	for _, tt := range []struct {
		name, a, b string
		same       bool
	}{
		{"two domains", file("d", "x"), file("e", "x*"), true},
		{"one domain", file("d", "x"), file("d", "y"), true},
		{"one domain, one wildcard", file("d", "x"), file("d", "y*"), true},
		{"one domain, two wildcards", file("d", "x*"), file("d", "*y"), false},
	} {
		a := load(t, Options{MergeDomains: true}, tt.a, tt.b).Hash
		b := load(t, Options{MergeDomains: true}, tt.b, tt.a).Hash
		if (a == b) != tt.same {
			t.Errorf("%s: hashes %s and %s in the two orders, want the same %v", tt.name, a, b, tt.same)
		}
	}
}

func TestAdvice(t *testing.T) {
	s := load(t, Options{}, `domain: d
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 1, unit_multiplier: 23}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 1, unit_multiplier: 24}}
  - {key: c, rate_limit: {unit: month, requests_per_unit: 1}}
`)
	ds := Advice(s, false)
	if len(ds) != 1 || ds.HasErrors() {
		t.Fatalf("Advice = %v, want one warning", ds)
	}
	want := `a.yaml:4:26: warning: restart: domain "d" > key "b": counters in memory are lost at a restart, which matters for windows of a day or more`
	if got := ds[0].String(); got != want {
		t.Errorf("Advice = %s, want %s", got, want)
	}
}

func TestCompileDeepTree(t *testing.T) {
	const depth = 10_000
	leaf := rules.Descriptor{Key: "k", RateLimits: []rules.Limit{{Unit: rules.Hour, UnitMultiplier: 1}}}
	var entries []Entry
	for range depth - 1 {
		leaf = rules.Descriptor{Key: "k", Descriptors: []rules.Descriptor{leaf}}
		entries = append(entries, Entry{Key: []byte("k")})
	}
	s, ds := Compile([]rules.Config{{Domain: "d", Descriptors: []rules.Descriptor{leaf}}}, Options{})
	must.OK(t, ds.Err())
	p := plan(s, Global{}, Descriptor{Entries: append(entries, Entry{Key: []byte("k")})}, Descriptor{Entries: entries})
	if p.Matches[0].Rule == nil || p.Matches[1].Rule != nil || p.Limits[0].Policy.Window != time.Hour {
		t.Errorf("matches = %s, want only the first", fmt.Sprint(p.Matches))
	}
}
