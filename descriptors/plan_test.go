package descriptors

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// rules compiles YAML files that must be free of errors.
func rules(t testing.TB, opt Options, files ...string) *Set {
	t.Helper()
	set, ds := compile(t, opt, files...)
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	return set
}

func compile(t testing.TB, opt Options, files ...string) (*Set, Diagnostics) {
	t.Helper()
	var configs []Config
	for i, file := range files {
		cs, ds := Parse(string(rune('a'+i))+".yaml", []byte(file))
		if err := ds.Err(); err != nil {
			t.Fatal(err)
		}
		configs = append(configs, cs...)
	}
	return Compile(configs, opt)
}

// desc makes a descriptor of keys and values in turn.
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

// limits returns each descriptor's charges as `rate mode group`.
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
	return all
}

func TestPlanOfTwoDescriptors(t *testing.T) {
	s := rules(t, Options{}, `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: b
    value: x*
    rate_limits:
      - {unit: minute, requests_per_unit: 60}
      - {unit: hour, requests_per_unit: 100, unit_multiplier: 2}
`)
	p := plan(s, Global{}, desc("a", "1"), desc("no", ""), desc("b", "x1"))
	if diff := cmp.Diff([][]string{{"5/minute"}, nil, {"60/minute", "100/2hour"}}, limits(p)); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	for i, want := range []int32{0, 1, 1} {
		if got := p.Batch.Charges[i].Group; got != want {
			t.Errorf("Charges[%d].Group = %d, want %d", i, got, want)
		}
	}
	var _ limiter.Batch = p.Batch
}
