package descriptors

import (
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// id returns the identity of the only charge of a descriptor.
func id(t *testing.T, s *Set, domain string, d Descriptor) identity.ID {
	t.Helper()
	p := &Plan{}
	s.Plan(p, &Request{Domain: []byte(domain), Descriptors: []Descriptor{d}}, Global{})
	if len(p.Batch.Charges) != 1 {
		t.Fatalf("%d charges of %s, want 1", len(p.Batch.Charges), d.Entries)
	}
	return p.Batch.Charges[0].ID
}

const identityRules = `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: hour, requests_per_unit: 10}
    descriptors:
      - key: b
        rate_limit: {unit: hour, requests_per_unit: 10}
  - key: a_b
    rate_limit: {unit: hour, requests_per_unit: 10}
    descriptors:
      - key: c
        rate_limit: {unit: hour, requests_per_unit: 10}
  - key: p
    value: path/*
    share_threshold: true
    descriptors:
      - key: f
        value: file/*
        rate_limit: {unit: hour, requests_per_unit: 10}
  - key: day
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: h*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 10}
`

func TestIdentity(t *testing.T) {
	const edited = `
domain: d
descriptors:
  - key: a
    value: x
    shadow_mode: true
    rate_limit: {unit: minute, unit_multiplier: 60, requests_per_unit: 99, name: n, count_refused: false}
  - key: day
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: p
    value: path/*
    descriptors:
      - key: f
        rate_limit: {unit: hour, requests_per_unit: 10}
`
	s := load(t, Options{}, identityRules)
	e := load(t, Options{}, edited)
	other := load(t, Options{}, "domain: e\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 10}}]")
	keyed := load(t, Options{HashKey: identity.Key{1}}, identityRules)
	const limit = "rate_limit: {unit: hour, requests_per_unit: 1}"
	deep := load(t, Options{}, "domain: d\ndescriptors: ["+strings.Repeat("{key: k, descriptors: [", 38)+
		"{key: k, descriptors: [{key: l, "+limit+"}]}, {key: l, descriptors: [{key: k, "+limit+"}]}"+strings.Repeat("]}", 38)+"]")
	deepest := func(last string) Descriptor { return desc(strings.Fields(strings.Repeat("k v ", 38) + last)...) }
	type of struct {
		s    *Set
		d    string
		desc Descriptor
	}
	for _, tc := range []struct {
		name string
		a, b of
		same bool
	}{
		{"the same twice", of{s, "d", desc("a", "x")}, of{s, "d", desc("a", "x")}, true},
		{"edited limit, name and other fields of an exact rule", of{s, "d", desc("a", "x")}, of{e, "d", desc("a", "x")}, true},
		{"other value", of{s, "d", desc("a", "x")}, of{s, "d", desc("a", "y")}, false},
		{"empty value and no value of another key", of{s, "d", desc("a", "")}, of{s, "d", desc("a_b", "")}, false},
		{"underscores in key and value", of{s, "d", desc("a", "b_c")}, of{s, "d", desc("a_b", "c")}, false},
		{"one entry or two", of{s, "d", desc("a", "x", "b", "")}, of{s, "d", desc("a", "xb")}, false},
		{"other domain", of{s, "d", desc("a", "x")}, of{other, "e", desc("a", "x")}, false},
		{"other hash key", of{s, "d", desc("a", "x")}, of{keyed, "d", desc("a", "x")}, false},
		{"other window", of{s, "d", desc("day", "x")}, of{e, "d", desc("day", "x")}, false},
		{"values of deep levels swapped", of{deep, "d", deepest("k 1 l 2")}, of{deep, "d", deepest("k 2 l 1")}, false},
		{"keys of deep levels swapped", of{deep, "d", deepest("k 1 l 2")}, of{deep, "d", deepest("l 1 k 2")}, false},
		{"shared level", of{s, "d", desc("p", "path/1", "f", "file/1")}, of{s, "d", desc("p", "path/2", "f", "file/1")}, true},
		{"level that is not shared", of{s, "d", desc("p", "path/1", "f", "file/1")}, of{s, "d", desc("p", "path/1", "f", "file/2")}, false},
		{"shared and not shared", of{s, "d", desc("p", "path/1", "f", "file/1")}, of{e, "d", desc("p", "path/1", "f", "file/1")}, false},
		{"shared key with a star, values", of{s, "d", desc("h1", "x")}, of{s, "d", desc("h1", "y")}, true},
		{"shared key with a star, keys", of{s, "d", desc("h1", "x")}, of{s, "d", desc("h2", "x")}, false},
		{"override of the same window", of{s, "d", desc("a", "x")}, of{s, "d", desc("a", "x").limit(5, 3, 0)}, true},
		{"override of the same window by multiplier", of{s, "d", desc("a", "x")}, of{s, "d", desc("a", "x").limit(5, 2, 60)}, true},
		{"override of another window", of{s, "d", desc("a", "x")}, of{s, "d", desc("a", "x").limit(5, 4, 0)}, false},
		{"overrides of other numbers", of{s, "d", desc("q", "x").limit(1, 3, 0)}, of{s, "d", desc("q", "x").limit(2, 3, 0)}, true},
		{
			"override under share_threshold is keyed by the sent value",
			of{s, "d", desc("p", "path/1", "f", "file/1").limit(1, 3, 0)},
			of{s, "d", desc("p", "path/2", "f", "file/1").limit(1, 3, 0)},
			false,
		},
		{
			"override under share_threshold and the shared counter",
			of{s, "d", desc("p", "path/1", "f", "file/1").limit(1, 3, 0)},
			of{s, "d", desc("p", "path/1", "f", "file/1")},
			false,
		},
	} {
		a, b := id(t, tc.a.s, tc.a.d, tc.a.desc), id(t, tc.b.s, tc.b.d, tc.b.desc)
		if (a == b) != tc.same {
			t.Errorf("%s: same = %v, want %v", tc.name, a == b, tc.same)
		}
	}
}
