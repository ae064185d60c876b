package descriptors

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

func TestOverride(t *testing.T) {
	const file = `
domain: d
descriptors:
  - {key: k, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10, name: n}}
  - {key: u, rate_limit: {unlimited: true}}
  - {key: w, rate_limit: {unit: hour, requests_per_unit: 10, count_refused: false}}
  - {key: m, rate_limit: {unit: second, unit_multiplier: 30, requests_per_unit: 10}}
  - key: list
    rate_limits:
      - {unit: minute, requests_per_unit: 60, count_refused: true}
      - {unit: day, requests_per_unit: 1000}
  - key: plain_list
    rate_limits:
      - {unit: minute, requests_per_unit: 60}
      - {unit: day, requests_per_unit: 1000}
`
	each := load(t, Options{}, file)
	together := load(t, Options{AllOrNothing: true}, file)
	policy := func(limit uint32, window time.Duration, count bool) *limiter.Policy {
		return &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: limit, Window: window, CountRefused: count}
	}
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name string
		set  *Set
		desc Descriptor
		want *limiter.Policy // nil if the override is ignored
	}{
		{"with a rule", each, desc("k", "").limit(5, 3, 0), policy(5, time.Hour, true)},
		{"zero", each, desc("k", "").limit(0, 3, 0), policy(0, time.Hour, true)},
		{"without a rule", each, desc("x", "1", "y", "2").limit(5, 4, 0), policy(5, day, true)},
		{"without entries", each, desc().limit(5, 4, 0), policy(5, day, true)},
		{"of unlimited", each, desc("u", "").limit(5, 1, 0), policy(5, time.Second, true)},
		{"week", each, desc("k", "").limit(5, 7, 0), policy(5, 7*day, true)},
		{"month", each, desc("k", "").limit(5, 5, 0), policy(5, 30*day, true)},
		{"its own multiplier", each, desc("k", "").limit(5, 2, 10), policy(5, 10*time.Minute, true)},
		{"the rule's multiplier does not apply", each, desc("m", "").limit(5, 1, 0), policy(5, time.Second, true)},
		{"count_refused stays", each, desc("w", "").limit(5, 1, 0), policy(5, time.Second, false)},
		{"the first item of a list applies", each, desc("list", "").limit(5, 1, 0), policy(5, time.Second, true)},
		{"a list without count_refused", each, desc("plain_list", "").limit(5, 1, 0), policy(5, time.Second, false)},
		{"all_or_nothing", together, desc("k", "").limit(5, 1, 0), policy(5, time.Second, false)},
		{"all_or_nothing without a rule", together, desc("x", "").limit(5, 1, 0), policy(5, time.Second, false)},
		{"all_or_nothing, count_refused stays", together, desc("list", "").limit(5, 1, 0), policy(5, time.Second, true)},
		{"longest window", each, desc("k", "").limit(5, 6, 10), policy(5, limiter.MaxWindow, true)},
		{"window too long", each, desc("k", "").limit(5, 6, 11), nil},
		{"greatest multiplier", each, desc("k", "").limit(5, 6, 1<<32-1), nil},
		{"unit unknown", each, desc("k", "").limit(5, 0, 0), nil},
		{"unit undefined", each, desc("k", "").limit(5, 8, 0), nil},
		{"unit negative", each, desc("k", "").limit(5, -1, 0), nil},
		{"ignored without a rule", each, desc("x", "").limit(5, 0, 0), nil},
	} {
		p := plan(tc.set, Global{}, desc("k", "other").limit(1, 1, 1), tc.desc)
		m := p.Matches[1]
		if tc.want == nil {
			if m.Override || !m.IgnoredOverride || (m.Rule != nil) != (string(tc.desc.Entries[0].Key) == "k") {
				t.Errorf("%s: match = %+v, want the override ignored", tc.name, m)
			}
			continue
		}
		if !m.Override || m.IgnoredOverride || m.Rule != nil || m.Count != 1 || m.First != 1 {
			t.Errorf("%s: match = %+v, want one charge of an override", tc.name, m)
			continue
		}
		l := p.Limits[1]
		if got := *p.Batch.Charges[1].Policy; withoutDerived(got) != *tc.want {
			t.Errorf("%s: policy = %+v, want %+v", tc.name, got, *tc.want)
		}
		if mode := p.Batch.Charges[1].Mode; mode != limiter.Enforce {
			t.Errorf("%s: mode = %v", tc.name, mode)
		}
		if l.Index != -1 || l.Rule != nil || l.Name != "" || l.RequestsPerUnit != tc.want.Limit ||
			l.Unit != rules.Unit(tc.desc.Override.Unit) || l.UnitMultiplier != max(1, tc.desc.Override.UnitMultiplier) {
			t.Errorf("%s: limit = %+v", tc.name, l)
		}
		if p.Limits[0].RequestsPerUnit != 1 || p.Batch.Charges[0].Policy.Limit != 1 {
			t.Errorf("%s: the preceding override became %+v", tc.name, p.Limits[0])
		}
	}
}

func TestOverridesAreNotReallocated(t *testing.T) {
	s, p := load(t, Options{}, "domain: d"), &Plan{}
	req := &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc("a", "").limit(1, 1, 0), desc("b", "").limit(2, 1, 0)}}
	s.Plan(p, req, Global{})
	want := cap(p.overrides)
	for range 100 {
		s.Plan(p, req, Global{})
	}
	if got := cap(p.overrides); got != want {
		t.Errorf("the capacity is %d overrides after 100 requests, want %d as after one request", got, want)
	}
}
