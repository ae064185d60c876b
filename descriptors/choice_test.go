package descriptors

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const tenants = `
domain: d
descriptors:
  - key: k
    charge: first_with_room
    rate_limits:
      - {name: own, unit: hour, requests_per_unit: 10, table: t}
      - {name: pool, unit: day, requests_per_unit: 100, counter: pool}
      - {name: report, unit: day, requests_per_unit: 50, soft: true}
  - {key: other, rate_limit: {unit: day, requests_per_unit: 100, counter: pool}}
`

// TestPlanChoice checks the charges of a rule with charge: first_with_room.
func TestPlanChoice(t *testing.T) {
	opt, _ := withTable(t, "k,requests_per_unit,unit,unlimited\nzero,0,,\nfree,,,true\nday,7,day,\n")
	set := load(t, opt, tenants)
	for _, tt := range []struct {
		name string
		desc Descriptor
		// want has a word for each charge: name of the limit and number, `first` or `next` for an
		// alternative, hits.
		want      string
		unlimited bool
	}{
		{"plain", desc("k", "a").hits(3), "own 10 first 3; pool 100 next 3; report 50 3", false},
		{"a row in the pool's window", desc("k", "day"), "own 7 first 1; pool 100 next 1; report 50 1", false},
		{"row of 0", desc("k", "zero"), "pool 100 first 1; report 50 1", false},
		{"unlimited row", desc("k", "free"), "report 50 1", true},
		{"refund", desc("k", "a").hits(3).refund(), "own 10 3; report 50 3", false},
		{"refund for a row of 0", desc("k", "zero").refund(), "own 0 1; report 50 1", false},
		{"override", desc("k", "a").limit(5, 3, 0), " 5 1", false},
		{"counter alone", desc("other", "x").hits(2).refund(), " 100 2", false},
	} {
		p := plan(set, Global{}, tt.desc)
		var got []string
		for i, l := range p.Limits {
			c := &p.Batch.Charges[i]
			choice := [...]string{"", "first ", "next "}[c.Choice]
			got = append(got, fmt.Sprintf("%s %d %s%d", l.Name, c.Policy.Limit, choice, c.Hits))
		}
		if text := strings.Join(got, "; "); text != tt.want || (p.Matches[0].Unlimited != nil) != tt.unlimited {
			t.Errorf("%s: %s, unlimited: %t; want %s", tt.name, text, p.Matches[0].Unlimited != nil, tt.want)
		}
	}
	if c := plan(set, Global{ReadOnly: true}, desc("k", "zero")).Batch.Charges; len(c) != 3 || c[0].Choice != limiter.NoChoice {
		t.Errorf("a lookup has the charges %+v, want one of each limit, and no choice", c)
	}
}

// TestRowsOfAllLimitsAre0 checks that a choice whose limits are all left out denies.
func TestRowsOfAllLimitsAre0(t *testing.T) {
	opt, _ := withTable(t, "k,requests_per_unit\nzero,0\n")
	set := load(t, opt, `{domain: d, descriptors: [{key: k, charge: first_with_room, rate_limits: [
		{unit: hour, requests_per_unit: 10, table: t}, {unit: day, requests_per_unit: 10, table: t}]}]}`)
	p := plan(set, Global{}, desc("k", "zero"))
	if c := p.Batch.Charges; len(c) != 1 || c[0].Policy.Limit != 0 || p.Matches[0].Replaced {
		t.Errorf("charges: %+v, want one of a limit of 0", c)
	}
}

// TestSharedCounter checks that a counter is shared whatever the key and the descriptor, that its
// names and identities are those of no descriptor, and that an override does not use it.
func TestSharedCounter(t *testing.T) {
	namer := NewNamer("", nil)
	set := load(t, Options{}, `{domain: d, descriptors: [{key: k, charge: first_with_room, rate_limits: [
		{unit: hour, requests_per_unit: 10}, {unit: day, requests_per_unit: 100, counter: pool}]},
		{key: other, rate_limit: {unit: day, requests_per_unit: 100, counter: pool}},
		{key: alone, rate_limit: {unit: day, requests_per_unit: 100, counter: alone}},
		{key: pool, rate_limit: {unit: day, requests_per_unit: 100}}]}`)
	type counter struct {
		id     string
		name   string
		pinned bool
	}
	counters := func(d Descriptor) (all []counter) {
		req := Request{Domain: []byte("d"), Descriptors: []Descriptor{d}}
		var p Plan
		set.Plan(&p, &req, Global{})
		namer.Name(&p, &req)
		for i, c := range p.Batch.Charges {
			all = append(all, counter{fmt.Sprint(c.ID), string(p.Names[i]), c.Policy.Pinned})
		}
		return all
	}
	pool := counters(desc("k", "a"))[1]
	for _, d := range []Descriptor{desc("k", "b"), desc("other", "x"), desc("other", "y")} {
		if got := counters(d); got[len(got)-1] != pool || !pool.pinned {
			t.Errorf("%s: %+v, want the counter %+v", d.Entries, got, pool)
		}
	}
	if a, b := counters(desc("k", "a"))[0], counters(desc("k", "b"))[0]; a == b || a.pinned {
		t.Errorf("two tenants have the own counters %+v and %+v", a, b)
	}
	for _, d := range []Descriptor{desc("alone", "x"), desc("pool", ""), desc("other", "x").limit(100, 4, 0)} {
		if got := counters(d)[0]; got.id == pool.id || got.name == pool.name || got.pinned != (string(d.Entries[0].Key) == "alone") {
			t.Errorf("%s: counter %+v, and that of the pool is %+v", d.Entries, got, pool)
		}
	}
}

// TestCounterpartOfShared looks for the counterparts of limits of a list with the same window.
func TestCounterpartOfShared(t *testing.T) {
	rules := func(counter string) *Set {
		return load(t, Options{}, `{domain: d, descriptors: [{key: k, charge: first_with_room, rate_limits: [
			{unit: day, requests_per_unit: 10}, {unit: day, requests_per_unit: 100, counter: `+counter+`}]}]}`)
	}
	was, other := rules("pool"), rules("other")
	for i, l := range rules("pool").Limits {
		if got := was.Counterpart(l); got != was.Limits[i] {
			t.Errorf("the counterpart of %s is %v", l, got)
		}
		if got := other.Counterpart(l); (got == nil) != (i == 1) {
			t.Errorf("the counterpart of %s with another counter is %v", l, got)
		}
	}
}

// TestChoiceMistakes checks the errors of charge and counter that concern several fields or limits.
func TestChoiceMistakes(t *testing.T) {
	const pool, two = "{unit: day, requests_per_unit: 100, counter: pool}", "{unit: hour, requests_per_unit: 10}, {unit: day, requests_per_unit: 100, "
	opt, _ := withTable(t, "")
	for fields, want := range map[string]string{
		"rate_limits: [" + pool + "]": "needs at least two limits that can deny",
		"rate_limits: [" + pool + ", {unit: hour, requests_per_unit: 1, name: n, soft: true}]": "needs at least two limits that can deny",
		"rate_limit: " + pool:                                              "needs at least two limits that can deny",
		"descriptors: []":                                                  "needs at least two limits that can deny",
		"quota_mode: true, rate_limits: [" + two + "}]":                    `"quota_mode: true" is not supported with "charge: first_with_room"`,
		"rate_limits: [" + two + "penalty: [2m]}]":                         `rate_limits[1]: "penalty" is not supported`,
		"rate_limits: [" + two + "count_refused: true}]":                   `rate_limits[1]: "count_refused: true" is not supported`,
		"rate_limits: [" + two + "algorithm: leaky_bucket, max_wait: 1s}]": `rate_limits[1]: "max_wait" is not supported`,
		"rate_limits: [" + two + "replaces: [{name: n}]}]":                 `rate_limits[1]: "replaces" is not supported`,
		"rate_limits: [" + two + "name: n, reserve: {amount: 1}}]":         `rate_limits[1]: "reserve" is not supported`,
		"rate_limits: [" + two + "name: n, algorithm: concurrency}]":       `rate_limits[1]: "algorithm: concurrency" is not supported`,
	} {
		_, found := compile(t, opt, "{domain: d, descriptors: [{key: k, charge: first_with_room, "+fields+"}]}")
		if text := fmt.Sprint(found.Err()); !strings.Contains(text, want) || !strings.Contains(text, "; ") {
			t.Errorf("%s: %s\nwant an error with %q and a remedy", fields, text, want)
		}
	}
	for _, other := range []string{
		"unit: hour, requests_per_unit: 100", "unit: day, requests_per_unit: 99", "unit: day, requests_per_unit: 100, algorithm: sliding_window",
		"unit: day, requests_per_unit: 100, calendar: true, timezone: Europe/Paris", "unit: day, requests_per_unit: 100, name: n, soft: true",
	} {
		_, found := compile(t, opt, "domain: d\ndescriptors:\n- {key: k, rate_limit: "+pool+"}\n- {key: l, rate_limit: {counter: pool, "+other+"}}")
		if text := fmt.Sprint(found.Err()); !strings.Contains(text, `counter "pool" is also that of the limit at`) || strings.Count(text, "yaml:") != 2 {
			t.Errorf("%s: %s\nwant an error with both places", other, text)
		}
	}
}

// TestChoose checks that each match keeps the charge that describes its choice.
func TestChoose(t *testing.T) {
	opt, _ := withTable(t, "")
	p := plan(load(t, opt, tenants), Global{}, desc("k", "a"), desc("other", "a"), desc("k", "b"))
	p.Batch.Decisions = make([]limiter.Decision, len(p.Batch.Charges))
	for _, at := range []int{0, 4} { // the first charge of one choice and the second of the other
		p.Batch.Decisions[at].Skipped = true
	}
	p.Choose()
	var got [][2]int
	for _, m := range p.Matches {
		got = append(got, [2]int{m.First, m.Count})
	}
	if diff := cmp.Diff([][2]int{{1, 1}, {2, 1}, {3, 1}}, got); diff != "" || !p.Choices {
		t.Errorf("choices: %t; charges of the matches (-want +got):\n%s", p.Choices, diff)
	}
}
