package descriptors

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

const rangeRules = `
domain: d
descriptors:
  - { key: a, rate_limit: { unit: minute, requests_per_unit: 1, name: any } }
  - { key: a, value: "10.*", rate_limit: { unit: minute, requests_per_unit: 1, name: wildcard } }
  - { key: a, value: 10.1.2.4, rate_limit: { unit: minute, requests_per_unit: 1, name: exact } }
  - { key: a, cidr: [10.1.0.0/16, 2001:db8::/32, 192.0.2.7], rate_limit: { unit: minute, requests_per_unit: 1, name: wide } }
  - { key: a, cidr: [10.1.2.0/24, "2001:db8:1::/48"], rate_limit: { unlimited: true, name: narrow } }
  - { key: shared, cidr: [10.0.0.0/8], share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 1, name: shared } }
  - { key: shared, rate_limit: { unit: minute, requests_per_unit: 1, name: others } }
  - { key: net, prefix: { v4: 24, v6: 64 }, detailed_metric: true, rate_limit: { unit: minute, requests_per_unit: 1, name: networks } }
  - { key: net, cidr: [10.1.2.128/25, 10.2.0.0/16], prefix: { v4: 24 }, detailed_metric: true, rate_limit: { unit: minute, requests_per_unit: 1, name: clipped } }
  - { key: net, value: 198.51.100.0/24, rate_limit: { unit: minute, requests_per_unit: 1, name: text } }
  - { key: plan, values: [free, trial, p3, p4, p5, p6, p7, p8, p9], rate_limit: { unit: minute, requests_per_unit: 1, name: list } }
  - { key: plan, value: pro, rate_limit: { unit: minute, requests_per_unit: 1, name: pro } }
  - { key: tier, values: [x, y], share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 1, name: tier } }
  - { key: tier, rate_limit: { unit: minute, requests_per_unit: 1, name: tiers } }
`

func TestRangesMatch(t *testing.T) {
	s := load(t, Options{}, rangeRules)
	for _, tt := range []struct {
		key, value, limit string
		notAddresses      int
	}{
		{"a", "10.1.2.4", "exact", 0},
		{"a", "10.1.2.4:80", "narrow", 0},
		{"a", "10.1.2.3", "narrow", 0},
		{"a", "10.1.3.3", "wide", 0},
		{"a", "10.1.2.0/24", "narrow", 0},
		{"a", "10.1.2.0/23", "wide", 0},
		{"a", "10.1.2.3/23", "wide", 0},
		{"a", "10.1.0.0/15", "wildcard", 0},
		{"a", "10.9.0.1", "wildcard", 0},
		{"a", "::ffff:10.1.2.3", "narrow", 0},
		{"a", "[::ffff:10.1.3.3]:80", "wide", 0},
		{"a", "[2001:db8:1::1%eth0]:443", "narrow", 0},
		{"a", "2001:DB8:2::1", "wide", 0},
		{"a", "2001:db9::1", "any", 0},
		{"a", "192.0.2.7", "wide", 0},
		{"a", "192.0.2.7/31", "any", 0},
		{"a", "unknown", "any", 1},
		{"a", "10.1.2.3, 10.1.2.5", "wildcard", 1},
		{"a", "", "any", 1},
		{"plan", "trial", "list", 0},
		{"plan", "p9", "list", 0},
		{"plan", "pro", "pro", 0},
		{"plan", "list", "", 0},
		{"net", "unknown", "networks", 1},
	} {
		var p Plan
		s.Plan(&p, &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc(tt.key, tt.value)}}, Global{})
		got := ""
		if r := p.Matches[0].Rule; r != nil {
			got = r.Limits[0].Name
		}
		if got != tt.limit || p.NotAddresses() != tt.notAddresses {
			t.Errorf("%s=%s matches %q and counts %d values, want %q and %d", tt.key, tt.value, got, p.NotAddresses(), tt.limit, tt.notAddresses)
		}
		if x := s.Explain("d", desc(tt.key, tt.value).Entries); (x.Rule == nil) != (got == "") || x.Rule != nil && x.Rule.Limits[0].Name != got {
			t.Errorf("%s=%s: explained as\n%s", tt.key, tt.value, x)
		}
	}
}

// TestRangesCount checks which values share a counter, in memory and in a store, and that planning
// them allocates nothing.
func TestRangesCount(t *testing.T) {
	s := load(t, Options{}, rangeRules)
	namer := NewNamer("", nil)
	for _, tt := range []struct {
		key, a, b string
		same      bool
	}{
		{"a", "192.0.2.7", "192.0.2.7:80", true},
		{"a", "10.1.3.3", "::ffff:10.1.3.3", true},
		{"a", "10.1.3.3", "10.1.3.3/32", true},
		{"a", "10.1.3.3", "10.1.3.4", false},
		{"a", "2001:db8::1", "[2001:db8:0::1%a]:1", true},
		{"shared", "10.1.3.3", "10.9.9.9", true},
		{"shared", "10.1.3.3", "11.1.1.1", false},
		{"shared", "10.1.3.3", "10.0.0.0/8", true},
		{"shared", "10.1.3.3", "11.0.0.0/8", false},
		{"shared", "x", "y", false},
		{"net", "192.0.2.7", "192.0.2.8:80", true},
		{"net", "192.0.2.7", "192.0.2.0/24", true},
		{"net", "192.0.2.7", "192.0.3.7", false},
		{"net", "2001:db8::1", "2001:db8::2", true},
		{"net", "2001:db8::1", "2001:db8:0:1::1", false},
		{"net", "x", "y", false},
		{"net", "10.1.2.129", "10.1.2.130", true},
		{"net", "10.1.2.129", "10.1.2.1", false}, // the network is clipped to the range
		{"net", "10.2.2.129", "10.2.2.1", true},
		{"net", "198.51.100.7", "198.51.100.0/24", false}, // the latter is an exact value
		{"plan", "free", "trial", false},
		{"tier", "x", "y", true},
		{"tier", "x", "x,y", false},
	} {
		var a, b Plan
		request := func(value string) *Request {
			return &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc(tt.key, value)}}
		}
		reqA, reqB := request(tt.a), request(tt.b)
		plan := func(p *Plan, req *Request) (id, name string) {
			if n := must.AllocsPerRun(10, func() {
				s.Plan(p, req, Global{})
				namer.Name(p, req)
			}); n != 0 {
				t.Errorf("%s=%s: %v allocations", tt.key, req.Descriptors[0].Entries[0].Value, n)
			}
			if len(p.Batch.Charges) == 0 {
				return "", ""
			}
			return fmt.Sprint(p.Batch.Charges[0].ID), string(p.Names[0])
		}
		idA, nameA := plan(&a, reqA)
		idB, nameB := plan(&b, reqB)
		if (idA == idB) != tt.same || (nameA == nameB) != tt.same {
			t.Errorf("%s: %s and %s have the counters %s and %s, and in a store %s and %s; want the same: %t", tt.key, tt.a, tt.b, idA, idB, nameA, nameB, tt.same)
		}
	}
	key, _, _ := s.domains["d"].match(desc("net", "2001:db8::1").Entries, new(addressReader)).rule.AppendMetricKey(nil, desc("net", "2001:db8::1").Entries)
	if got, want := string(key), "net_2001_db8__/64"; got != want {
		t.Errorf("metric key %s, want %s", got, want)
	}
}

// TestFilesOfOneName checks that lists in several directories, which the rules name in the same way,
// have different counters.
func TestFilesOfOneName(t *testing.T) {
	limits := []rules.Limit{{Unit: rules.Minute, RequestsPerUnit: 1, UnitMultiplier: 1}}
	var all []rules.Config
	for _, text := range []string{"10.0.0.0/8", "192.0.2.0/24", "198.51.100.0/24"} {
		set := &rules.ValueSet{File: "office.txt", Ranges: []rules.Range{{Prefix: netip.MustParsePrefix(text)}}}
		all = append(all, rules.Config{Domain: "d", Descriptors: []rules.Descriptor{{Key: "a", Set: set, ShareThreshold: true, RateLimits: limits}}})
	}
	s, ds := Compile(all, Options{MergeDomains: true})
	must.OK(t, ds.Err())
	counters := map[string]bool{}
	for _, value := range []string{"10.1.2.3", "10.1.2.4", "192.0.2.7", "198.51.100.7"} {
		var p Plan
		req := &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc("a", value)}}
		s.Plan(&p, req, Global{})
		NewNamer("", nil).Name(&p, req)
		counters[fmt.Sprint(p.Batch.Charges[0].ID, string(p.Names[0]))] = true
	}
	if len(counters) != len(all) {
		t.Errorf("%d counters, want %d", len(counters), len(all))
	}
}

func diagnosticTexts(ds rules.Diagnostics) (texts []string) {
	for _, d := range ds {
		texts = append(texts, d.String())
	}
	slices.Sort(texts)
	return texts
}

func TestDuplicateRanges(t *testing.T) {
	_, ds := compile(t, Options{}, `domain: d
descriptors:
  - { key: a, cidr: [10.0.0.0/8, 192.0.2.7, 10.0.0.0/8] }
  - { key: a, cidr: [192.0.2.7/32] }
  - { key: b, value: x }
  - { key: b, values: [y, x, y] }
  - { key: c, prefix: { v4: 24 } }
  - { key: c }
`)
	want := []string{
		`a.yaml:3:45: error: domain "d" > key "a" value "10.0.0.0/8,192.0.2.7,10.0.0.0/8": duplicate range 10.0.0.0/8 on this level; first at a.yaml:3:5`,
		`a.yaml:4:22: error: domain "d" > key "a" value "192.0.2.7": duplicate range 192.0.2.7 on this level; first at a.yaml:3:5`,
		`a.yaml:6:27: error: domain "d" > key "b" value "y,x,y": duplicate value "x" on this level; first at a.yaml:5:5`,
		`a.yaml:6:30: error: domain "d" > key "b" value "y,x,y": duplicate value "y" on this level; first at a.yaml:6:5`,
		`a.yaml:8:5: error: domain "d" > key "c": duplicate key and value on this level; first at a.yaml:7:5`,
	}
	if diff := cmp.Diff(want, diagnosticTexts(ds)); diff != "" {
		t.Error(diff)
	}
}

func TestRangesHideDescriptors(t *testing.T) {
	const minute = "rate_limit: { unit: minute, requests_per_unit: 1 }"
	_, ds := compile(t, Options{}, `domain: d
descriptors:
  - { key: a, descriptors: [{ key: path, value: /x, `+minute+` }, { key: path, `+minute+` }] }
  - { key: a, cidr: [10.0.0.0/8], rate_limit: { unlimited: true } }
  - { key: a, cidr: [10.1.0.0/16], `+minute+` }
  - { key: a, cidr: [10.2.0.0/16], descriptors: [{ key: path, value: /x, rate_limit: { unlimited: true } }] }
  - { key: a, cidr: [10.3.0.0/16], descriptors: [{ key: path, `+minute+` }, { key: path, value: /x, `+minute+` }] }
  - { key: a, cidr: [10.4.0.0/16], `+minute+` } # sluice:allow hides
  - { key: b, cidr: [10.1.0.0/16], `+minute+` }
`)
	want := []string{
		`a.yaml:5:5: warning: hides: domain "d" > key "a" value "10.1.0.0/16": requests of these addresses do not reach path=/x at a.yaml:3:29, since the first match is final; add the same below this descriptor, or an unlimited limit there to exempt them`,
		`a.yaml:6:5: warning: hides: domain "d" > key "a" value "10.2.0.0/16": requests of these addresses do not reach path at a.yaml:3:107, since the first match is final; add the same below this descriptor, or an unlimited limit there to exempt them`,
	}
	if diff := cmp.Diff(want, diagnosticTexts(ds)); diff != "" {
		t.Error(diff)
	}
}
