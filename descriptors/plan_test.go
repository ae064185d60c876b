package descriptors

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// load compiles YAML files without errors.
func load(tb testing.TB, opt Options, files ...string) *Set {
	tb.Helper()
	set, ds := compile(tb, opt, files...)
	must.OK(tb, ds.Err())
	return set
}

func compile(tb testing.TB, opt Options, files ...string) (*Set, rules.Diagnostics) {
	tb.Helper()
	var configs []rules.Config
	for i, file := range files {
		cs, ds := rulefile.Parse(string(rune('a'+i))+".yaml", []byte(file))
		must.OK(tb, ds.Err())
		configs = append(configs, cs...)
	}
	return Compile(configs, opt)
}

// desc returns a descriptor of alternating keys and values.
func desc(words ...string) Descriptor {
	var d Descriptor
	for i := 0; i < len(words); i += 2 {
		d.Entries = append(d.Entries, Entry{[]byte(words[i]), []byte(words[i+1])})
	}
	return d
}

func (d Descriptor) hits(n uint64) Descriptor {
	d.Hits, d.HasHits = n, true
	return d
}

func (d Descriptor) refund() Descriptor {
	d.Refund = true
	return d
}

func (d Descriptor) limit(requests uint32, unit int32, multiplier uint32) Descriptor {
	d.Override, d.HasOverride = Override{requests, unit, multiplier}, true
	return d
}

func plan(s *Set, global Global, ds ...Descriptor) *Plan {
	p := &Plan{}
	s.Plan(p, &Request{Domain: []byte("d"), Descriptors: ds}, global)
	return p
}

// limits returns the charges of each descriptor as `rate mode group`.
func limits(p *Plan) [][]string {
	all := make([][]string, len(p.Matches))
	for i := range p.Matches {
		m := &p.Matches[i]
		for at := m.First; at < m.First+m.Count; at++ {
			c := &p.Batch.Charges[at]
			mode := [...]string{"", " shadow", " quota"}[c.Mode]
			all[i] = append(all[i], rate(p.Limits[at])+mode)
		}
	}
	for _, c := range p.Candidates {
		all[c.Match] = append(all[c.Match], rate(p.Limits[c.Charge])+" candidate")
	}
	return all
}

func TestPlanGroups(t *testing.T) {
	const file = `
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: b
    value: x*
    rate_limits:
      - {unit: minute, requests_per_unit: 60}
      - {unit: hour, requests_per_unit: 100, unit_multiplier: 2}
`
	for _, tc := range []struct {
		name string
		root string
		opt  Options
		want []int32
	}{
		{"one group for each descriptor", "domain: d\n", Options{}, []int32{0, 1, 1, 2}},
		{"the file sets all_or_nothing", "domain: d\nall_or_nothing: true\n", Options{}, []int32{0, 0, 0, 0}},
		{"the process sets all_or_nothing", "domain: d\n", Options{AllOrNothing: true}, []int32{0, 0, 0, 0}},
	} {
		s := load(t, tc.opt, tc.root+file)
		p := plan(s, Global{}, desc("a", "1"), desc("no", ""), desc("b", "x1"), desc("b", "y"), desc("q", "").limit(1, 1, 1))
		if diff := cmp.Diff([][]string{{"5/minute"}, nil, {"60/minute", "100/2hour"}, nil, {"1/second"}}, limits(p)); diff != "" {
			t.Errorf("%s: limits (-want +got):\n%s", tc.name, diff)
		}
		var got []int32
		for _, c := range p.Batch.Charges {
			got = append(got, c.Group)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: groups (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestPlanHits(t *testing.T) {
	s := load(t, Options{}, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}, {key: u, rate_limit: {unlimited: true}}]")
	for _, tc := range []struct {
		addend uint32
		desc   Descriptor
		want   uint64
		refund bool
	}{
		{0, desc("a", ""), 1, false},
		{7, desc("a", ""), 7, false},
		{7, desc("a", "").hits(0), 0, false},
		{7, desc("a", "").hits(1 << 40), 1 << 40, false},
		{7, desc("a", "").refund(), 7, true},
		{0, desc("a", "").hits(3).refund(), 3, true},
		{5, desc("u", ""), 5, false},
		{5, desc("a", "").limit(1, 1, 1), 5, false},
	} {
		p := &Plan{}
		s.Plan(p, &Request{Domain: []byte("d"), HitsAddend: tc.addend, Descriptors: []Descriptor{tc.desc}}, Global{})
		if got := p.Matches[0].Hits; got != tc.want {
			t.Errorf("hits of %+v with %d = %d, want %d", tc.desc, tc.addend, got, tc.want)
		}
		for _, c := range p.Batch.Charges {
			if c.Hits != tc.want || c.Refund != tc.refund {
				t.Errorf("charge of %+v = %+v, want %d hits, refund %v", tc.desc, c, tc.want, tc.refund)
			}
		}
	}
}

func TestPlanUnknownDomain(t *testing.T) {
	s := load(t, Options{}, "domain: e")
	p := plan(s, Global{}, desc("a", "1").limit(1, 1, 1), desc("b", ""))
	if p.KnownDomain || p.DomainName != "" || len(p.Matches) != 2 || len(p.Batch.Charges) != 0 || p.Matches[0].Override {
		t.Errorf("plan = %+v, want two empty matches", p)
	}
	s.Plan(p, &Request{Domain: []byte("e"), Descriptors: []Descriptor{desc()}}, Global{})
	if !p.KnownDomain || p.DomainName != "e" || len(p.Matches) != 1 || p.Matches[0].Rule != nil {
		t.Errorf("plan = %+v, want a known domain with one empty match", p)
	}
}

func TestPlanIsReusedAfterALargerRequest(t *testing.T) {
	s := load(t, Options{}, replacesRules)
	p := plan(s, Global{Quota: true}, desc("k1", ""), desc("k2", ""), desc("k1", "").limit(1, 1, 1), desc("no", ""))
	s.Plan(p, &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc("k1", "")}}, Global{})
	if diff := cmp.Diff([][]string{{"1/hour"}}, limits(p)); diff != "" || p.Batch.QuotaPass || p.Matches[0].Replaced {
		t.Errorf("QuotaPass %v, Replaced %v, limits (-want +got):\n%s", p.Batch.QuotaPass, p.Matches[0].Replaced, diff)
	}
}

func TestPlanModes(t *testing.T) {
	s := load(t, Options{}, `
domain: d
descriptors:
  - {key: plain, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, name: quota}}
  - {key: both, quota_mode: true, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: unlimited, quota_mode: true, rate_limit: {unlimited: true}}
  - {key: white, quota_mode: true}
  - {key: other, rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: quota}]}}
`)
	for _, tc := range []struct {
		name   string
		global bool
		descs  []Descriptor
		limits [][]string
		pass   bool
	}{
		{"plain", false, []Descriptor{desc("plain", "")}, [][]string{{"1/hour"}}, false},
		{"shadow", false, []Descriptor{desc("shadow", "")}, [][]string{{"1/hour shadow"}}, false},
		{"quota", false, []Descriptor{desc("quota", "")}, [][]string{{"1/hour quota"}}, false},
		{"shadow wins over quota and passes", false, []Descriptor{desc("both", "")}, [][]string{{"1/hour shadow"}}, true},
		{"a refund under quota passes", false, []Descriptor{desc("quota", "").refund()}, [][]string{{"1/hour quota"}}, true},
		{"a refund of another rule does not pass", false, []Descriptor{desc("plain", "").refund()}, [][]string{{"1/hour"}}, false},
		{"an override is never shadow", false, []Descriptor{desc("shadow", "").limit(1, 3, 0)}, [][]string{{"1/hour"}}, false},
		{"an override is never quota", false, []Descriptor{desc("quota", "").limit(1, 3, 0)}, [][]string{{"1/hour"}}, false},
		{"unlimited, unmatched, no limit", false, []Descriptor{desc("unlimited", ""), desc("no", ""), desc("white", "")}, [][]string{nil, nil, nil}, false},
		{"a replaced quota rule", false, []Descriptor{desc("quota", ""), desc("other", "")}, [][]string{nil, {"1/hour"}}, false},

		{"global: plain", true, []Descriptor{desc("plain", "")}, [][]string{{"1/hour quota"}}, false},
		{"global: shadow", true, []Descriptor{desc("shadow", "")}, [][]string{{"1/hour shadow"}}, true},
		{"global: refund", true, []Descriptor{desc("plain", "").refund()}, [][]string{{"1/hour quota"}}, true},
		{"global: override", true, []Descriptor{desc("plain", "").limit(1, 3, 0)}, [][]string{{"1/hour quota"}}, false},
		{"global: override, refund", true, []Descriptor{desc("plain", "").limit(1, 3, 0).refund()}, [][]string{{"1/hour quota"}}, true},
		{"global: unmatched", true, []Descriptor{desc("no", "")}, [][]string{nil}, true},
		{"global: no limit", true, []Descriptor{desc("white", "")}, [][]string{nil}, true},
		{"global: an unlimited rule is not a quota member", true, []Descriptor{desc("unlimited", "")}, [][]string{nil}, false},
		{"global: replaced", true, []Descriptor{desc("quota", ""), desc("other", "")}, [][]string{nil, {"1/hour quota"}}, true},
	} {
		p := plan(s, Global{Quota: tc.global}, tc.descs...)
		if diff := cmp.Diff(tc.limits, limits(p)); diff != "" {
			t.Errorf("%s: limits (-want +got):\n%s", tc.name, diff)
		}
		if p.Batch.QuotaPass != tc.pass {
			t.Errorf("%s: QuotaPass = %v, want %v", tc.name, p.Batch.QuotaPass, tc.pass)
		}
	}
}

const replacesRules = `
domain: d
descriptors:
  - {key: k1, rate_limit: {unit: hour, requests_per_unit: 1, name: one}}
  - {key: k2, rate_limit: {unit: hour, requests_per_unit: 2, name: two, replaces: [{name: one}]}}
  - {key: k3, rate_limit: {unit: hour, requests_per_unit: 3, replaces: [{name: two}, {name: nobody}]}}
  - {key: u, rate_limit: {unlimited: true, name: three, replaces: [{name: one}]}}
  - {key: k4, rate_limit: {unit: hour, requests_per_unit: 4, replaces: [{name: three}]}}
  - {key: k5, rate_limit: {unit: hour, requests_per_unit: 5, name: one}}
  - key: list
    rate_limits:
      - {unit: hour, requests_per_unit: 6, name: one}
      - {unit: day, requests_per_unit: 7, replaces: [{name: four}]}
  - {key: k6, rate_limit: {unit: hour, requests_per_unit: 8, name: four}}
  - {key: la, rate_limit: {name: la, replaces: [{name: lb}], unit: hour, requests_per_unit: 0}}
  - {key: lb, rate_limit: {name: lb, replaces: [{name: la}], unit: hour, requests_per_unit: 0}}
`

func TestPlanReplaces(t *testing.T) {
	s := load(t, Options{}, replacesRules)
	for _, tc := range []struct {
		name     string
		descs    []Descriptor
		limits   [][]string
		replaced []bool
	}{
		{"nobody replaces", []Descriptor{desc("k1", "")}, [][]string{{"1/hour"}}, []bool{false}},
		{"before it", []Descriptor{desc("k1", ""), desc("k2", "")}, [][]string{nil, {"2/hour"}}, []bool{true, false}},
		{"after it", []Descriptor{desc("k2", ""), desc("k1", "")}, [][]string{{"2/hour"}, nil}, []bool{false, true}},
		{"a replaced limit still replaces others", []Descriptor{desc("k1", ""), desc("k2", ""), desc("k3", "")}, [][]string{nil, nil, {"3/hour"}}, []bool{true, true, false}},
		{"an unlimited rule replaces", []Descriptor{desc("k1", ""), desc("u", "")}, [][]string{nil, nil}, []bool{true, false}},
		{"an unlimited rule is not replaced", []Descriptor{desc("u", ""), desc("k4", "")}, [][]string{nil, {"4/hour"}}, []bool{false, false}},
		{"all limits of a name are replaced", []Descriptor{desc("k1", ""), desc("k5", ""), desc("k2", "")}, [][]string{nil, nil, {"2/hour"}}, []bool{true, true, false}},
		{"one limit of a list is replaced", []Descriptor{desc("list", ""), desc("k2", "")}, [][]string{{"7/day"}, {"2/hour"}}, []bool{false, false}},
		{"one limit of a list replaces", []Descriptor{desc("list", ""), desc("k6", "")}, [][]string{{"6/hour", "7/day"}, nil}, []bool{false, true}},
		{"each other", []Descriptor{desc("la", ""), desc("lb", "")}, [][]string{nil, nil}, []bool{true, true}},
		{"an override has no name", []Descriptor{desc("k1", "").limit(9, 3, 0), desc("k2", "")}, [][]string{{"9/hour"}, {"2/hour"}}, []bool{false, false}},
		{"an override replaces nothing", []Descriptor{desc("k1", ""), desc("k2", "").limit(9, 3, 0)}, [][]string{{"1/hour"}, {"9/hour"}}, []bool{false, false}},
		{"a rule with an ignored override replaces", []Descriptor{desc("k1", ""), desc("k2", "").limit(9, 0, 0)}, [][]string{nil, {"2/hour"}}, []bool{true, false}},
	} {
		p := plan(s, Global{}, tc.descs...)
		if diff := cmp.Diff(tc.limits, limits(p)); diff != "" {
			t.Errorf("%s: limits (-want +got):\n%s", tc.name, diff)
		}
		for i, want := range tc.replaced {
			if got := p.Matches[i].Replaced; got != want {
				t.Errorf("%s: Matches[%d].Replaced = %v, want %v", tc.name, i, got, want)
			}
		}
		if p.Matches[0].Rule == nil && !p.Matches[0].Override {
			t.Errorf("%s: the match has no rule", tc.name)
		}
	}
}
