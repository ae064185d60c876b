package descriptors

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

const exemptRules = `domain: d
exempt:
  - { key: remote_address, cidr: [10.0.0.0/8, 2001:db8::/32, 192.0.2.7] }
  - { key: plan, values: [internal, partner] }
  - { key: agent, value: probe-* }
descriptors:
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 1, name: users } }
  - { key: remote_address, rate_limit: { unit: minute, requests_per_unit: 1, name: addresses } }
  - { key: remote_address, cidr: [10.1.0.0/16], shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: candidate, rate_limits: [{ unit: minute, requests_per_unit: 1 }, { unit: hour, requests_per_unit: 1, shadow: true }] }
`

func TestExempt(t *testing.T) {
	s := load(t, Options{}, exemptRules)
	addresses, plans, agents := "remote_address=10.0.0.0/8,2001:db8::/32,192.0.2.7 at a.yaml:3:5", "plan=internal,partner at a.yaml:4:5", "agent=probe-* at a.yaml:5:5"
	user := desc("user", "u")
	override := user
	override.HasOverride, override.Override = true, Override{RequestsPerUnit: 1, Unit: 1}
	for _, tt := range []struct {
		name         string
		all          []Descriptor
		want         string // the item, or empty
		notAddresses int
	}{
		{"no descriptors", nil, "", 0},
		{"another key", []Descriptor{user}, "", 0},
		{"alone", []Descriptor{desc("remote_address", "10.2.3.4")}, addresses, 0},
		{"with a limited descriptor", []Descriptor{user, desc("remote_address", "10.2.3.4")}, addresses, 0},
		{"a later entry", []Descriptor{desc("user", "u", "remote_address", "10.2.3.4")}, addresses, 0},
		{"a key of no rule", []Descriptor{user, desc("plan", "partner")}, plans, 0},
		{"a wildcard", []Descriptor{user, desc("agent", "probe-1")}, agents, 0},
		{"an override", []Descriptor{override, desc("plan", "internal")}, plans, 0},
		{"shadow mode", []Descriptor{desc("remote_address", "10.1.0.1")}, addresses, 0},
		{"quota mode", []Descriptor{desc("quota", "q"), desc("plan", "internal")}, plans, 0},
		{"a candidate", []Descriptor{desc("candidate", "c"), desc("plan", "internal")}, plans, 0},
		{"a port", []Descriptor{desc("remote_address", "10.2.3.4:80")}, addresses, 0},
		{"a port of IPv6", []Descriptor{desc("remote_address", "[2001:db8::1]:80")}, addresses, 0},
		{"a mapped address", []Descriptor{desc("remote_address", "::ffff:10.2.3.4")}, addresses, 0},
		{"a network inside", []Descriptor{desc("remote_address", "10.2.0.0/16")}, addresses, 0},
		{"a network that is larger", []Descriptor{desc("remote_address", "10.0.0.0/7")}, "", 0},
		{"outside", []Descriptor{desc("remote_address", "192.0.2.8")}, "", 0},
		{"another value", []Descriptor{user, desc("plan", "internal2")}, "", 0},
		{"a value that is not an address", []Descriptor{desc("remote_address", "x")}, "", 1},
		{"one after an address", []Descriptor{desc("remote_address", "192.0.2.8"), desc("remote_address", "x")}, "", 1},
		{"an empty value", []Descriptor{desc("remote_address", "")}, "", 1},
		{"another case", []Descriptor{user, desc("plan", "Internal")}, "", 0},
		{"the value of another key", []Descriptor{user, desc("agent", "10.2.3.4")}, "", 0},
	} {
		var p Plan
		s.Plan(&p, &Request{Domain: []byte("d"), Descriptors: tt.all}, Global{})
		got := ""
		if p.Exempt != nil {
			got = p.Exempt.String()
		}
		if got != tt.want || p.NotAddresses() != tt.notAddresses || (len(p.Batch.Charges) == 0) != (got != "" || len(tt.all) == 0) {
			t.Errorf("%s: exempt by %q, %d values are not addresses, %d charges; want %q", tt.name, got, p.NotAddresses(), len(p.Batch.Charges), tt.want)
		}
		for i := range p.Matches {
			if m := &p.Matches[i]; got != "" && (m.Rule != nil || m.Override) {
				t.Errorf("%s: an exempt request matches a rule", tt.name)
			}
		}
		if s.Plan(&p, &Request{Domain: []byte("d"), Descriptors: tt.all}, Global{ReadOnly: true}); p.Exempt != nil {
			t.Errorf("%s: exempt without a request", tt.name)
		}
	}
}

// TestExemptForgedAddresses checks that values of which only a part is an exempt address do not
// exempt, as in a header X-Forwarded-For that a client wrote.
func TestExemptForgedAddresses(t *testing.T) {
	s := load(t, Options{}, exemptRules)
	for _, value := range []string{
		"", " ", "10.2.3.4, 203.0.113.9", "203.0.113.9, 10.2.3.4", "10.2.3.4,203.0.113.9", "10.2.3.4,10.2.3.5", "10.2.3.4 ", " 10.2.3.4", "10.2.3.4\x00", "10.2.3.4\t",
		"10.2.3.4;203.0.113.9", "for=10.2.3.4", `"10.2.3.4"`, "10.2.3.4:80:80", "10.2.3.4:", "10.2.3.4:99999", "10.2.3.4:-1", "10.2.3.4/", "10.2.3.4/0", "10.2.3.4/33", "10.2.3.4/8/8",
		"10.2.3", "10.2.3.4.5", "010.2.3.4", "0x0a.2.3.4", "167903236", "10.2.3.256", "10.2.3.4%eth0", "[10.2.3.4]", "[10.2.3.4]:80", "[2001:db8::1", "2001:db8::1]:80", "[2001:db8::1]x",
		"2001:db8::1%x, 203.0.113.9", "2001:db8::1%x,203.0.113.9", "2001:db8::1% 203.0.113.9", "2001:db8::1%x, 203.0.113.9/128", "[2001:db8::1%x], [2001:db9::1]:80",
		"::ffff:10.2.3.4%x, 203.0.113.9", "::10.2.3.4", "64:ff9b::10.2.3.4", "2001:db8:::1", "2001:db8::1,2001:db8::2", "２001:db8::1", "10.*", "*", "10.0.0.0/8,203.0.113.9", "10.0.0.0/8 203.0.113.9", "unknown",
	} {
		var p Plan
		s.Plan(&p, &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc("remote_address", value)}}, Global{})
		if p.Exempt != nil || len(p.Batch.Charges) != 1 {
			t.Errorf("%q is exempt by %v", value, p.Exempt)
		}
	}
}

// TestExemptRefunds checks that the refunds of exempt requests are charged, and nothing else.
func TestExemptRefunds(t *testing.T) {
	s := load(t, Options{}, exemptRules)
	refund := desc("user", "u")
	refund.Refund, refund.Hits, refund.HasHits = true, 1, true
	var p Plan
	s.Plan(&p, &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc("user", "v"), refund, desc("remote_address", "10.2.3.4")}}, Global{})
	if p.Exempt == nil || len(p.Batch.Charges) != 1 || !p.Batch.Charges[0].Refund || p.Matches[1].Count != 1 {
		t.Errorf("the charges are %+v, want the refund", p.Batch.Charges)
	}
}

// TestExemptLeases activates an exemption while a request holds a permit. The return of the lease
// releases it, and new requests acquire none.
func TestExemptLeases(t *testing.T) {
	d := newTestService(t, onePermit)
	office := desc("remote_address", "10.2.3.4")
	exempt := strings.Replace(onePermit, "{domain: d,", "{domain: d, exempt: [{key: remote_address, cidr: [10.0.0.0/8]}],", 1)
	first := d.decide(startCall(), office)
	lease := first.Batch.Lease(0)
	if lease == 0 {
		t.Fatal("no lease")
	}
	d.reload(exempt)
	if p := d.decide(startCall(), office); p.Exempt == nil || p.Batch.Denied || len(p.Batch.Charges) > 0 {
		t.Errorf("a new request has %d charges", len(p.Batch.Charges))
	}
	if used := d.used(); used != 1 {
		t.Fatalf("%d permits are used, want 1", used)
	}
	if p := d.decide(hitsOf(lease, false), office); p.Exempt != nil || !p.ReturnsLease() {
		t.Error("the lease is not returned")
	}
	if used := d.used(); used != 0 {
		t.Errorf("%d permits are used after the return, want 0", used)
	}
}

// TestExemptAllocatesNothing checks domains with and without exempt. The latter have nothing to look
// up.
func TestExemptAllocatesNothing(t *testing.T) {
	many := "{key: id, values: [a, b, c, d, e, f, g, h, i, j]}, {key: remote_address, cidr: [11.0.0.0/8]}"
	for _, text := range []string{exemptRules, strings.Replace(exemptRules, "exempt:", "exempt:\n  - "+strings.ReplaceAll(many, "}, {", "}\n  - {"), 1), "{domain: d, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 1}}]}"} {
		s := load(t, Options{}, text)
		if has := strings.Contains(text, "exempt"); (s.domains["d"].exempt != nil) != has {
			t.Errorf("the domain has exemptions: %v, want %v", !has, has)
		}
		for _, value := range []string{"10.2.3.4", "[2001:db8::1]:80", "203.0.113.9", "10.2.3.4, 203.0.113.9", "unknown"} {
			req := &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc("user", "u"), desc("remote_address", value)}}
			var p Plan
			if n := must.AllocsPerRun(100, func() { s.Plan(&p, req, Global{}) }); n > 0 {
				t.Errorf("%s: %v allocations", value, n)
			}
		}
	}
}

// TestExemptFiles checks that the items of all files of a domain apply, even if they are equal. In
// one file, equal items are a warning.
func TestExemptFiles(t *testing.T) {
	a := "{domain: d, exempt: [{key: k, values: [a, b]}, {key: r, cidr: [10.0.0.0/8]}]}"
	b := "{domain: d, exempt: [{key: k, values: [b, c]}, {key: r, cidr: [10.0.0.0/8, 11.0.0.0/8]}], descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]}"
	s, ds := compile(t, Options{MergeDomains: true}, a, b)
	if len(ds) > 0 {
		t.Fatal(ds)
	}
	for _, d := range []Descriptor{desc("k", "a"), desc("k", "b"), desc("k", "c"), desc("r", "10.0.0.1"), desc("r", "11.0.0.1")} {
		var p Plan
		if s.Plan(&p, &Request{Domain: []byte("d"), Descriptors: []Descriptor{d}}, Global{}); p.Exempt == nil {
			t.Errorf("%s is not exempt", d.Entries[0].Value)
		}
	}
	_, ds = compile(t, Options{}, "domain: d\nexempt:\n- {key: k, values: [a, b]}\n- {key: k, value: b}\n- {key: r, cidr: [10.0.0.0/8, 10.0.0.0/8]}\n")
	var got []string
	for _, d := range ds {
		got = append(got, d.String())
	}
	want := []string{
		`a.yaml:4:3: warning: twice: domain "d" > exempt: duplicate key and value; first in the item at a.yaml:3:3; remove one of them`,
		`a.yaml:5:31: warning: twice: domain "d" > exempt: duplicate range 10.0.0.0/8; first in the item at a.yaml:5:3; remove one of them`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestExemptTexts checks the hash, /rlconfig and the log of a reload.
func TestExemptTexts(t *testing.T) {
	of := func(exempt string) *Set {
		return load(t, Options{}, "{domain: d, "+exempt+"descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]}")
	}
	none, one := of(""), of("exempt: [{key: r, cidr: [10.0.0.0/8]}], ")
	five := "exempt: [{key: r, cidr: [10.0.0.0/8]}, {key: a, value: b}, {key: c, values: [d, e]}, {key: f, value: g}, {key: f, values: [x, h, i, j%s]}], "
	many, other := of(strings.Replace(five, "%s", "", 1)), of(strings.Replace(five, "%s", ", k", 1))
	shown := ", exempt: [r=10.0.0.0/8, a=b, c=d,e, 2 more]"
	for _, tt := range []struct {
		was, is *Set
		want    string
	}{
		{none, one, "d: defaults -> exempt: [r=10.0.0.0/8]"},
		{one, none, "d: exempt: [r=10.0.0.0/8] -> defaults"},
		{one, many, "d: exempt: [r=10.0.0.0/8] -> " + shown[2:]},
		{many, other, "d: exempt has other values or ranges"},
	} {
		if c := tt.is.Changes(tt.was); !slices.Equal(c.First, []string{tt.want}) || tt.was.Hash == tt.is.Hash {
			t.Errorf("the changes are %q, want %q; the hashes are %s and %s", c.First, tt.want, tt.was.Hash, tt.is.Hash)
		}
	}
	if c := many.Changes(of(strings.Replace(five, "%s", "", 1))); c.Total() > 0 {
		t.Errorf("equal rules differ: %q", c.First)
	}
	var b strings.Builder
	must.OK(t, many.Dump(&b))
	if !strings.HasSuffix(b.String(), shown+"\n") {
		t.Errorf("/rlconfig is %s", b.String())
	}
}

func TestExplainExempt(t *testing.T) {
	s := load(t, Options{}, exemptRules)
	for _, tt := range []struct {
		entries []Entry
		want    string
	}{
		{desc("remote_address", "10.2.3.4:80").Entries, "exempt: remote_address: 10.2.3.4 in 10.0.0.0/8 of remote_address=10.0.0.0/8,2001:db8::/32,192.0.2.7 at a.yaml:3:5; the request passes and is not charged\n"},
		{desc("user", "u", "plan", "partner").Entries, "exempt: plan=partner by plan=internal,partner at a.yaml:4:5; the request passes and is not charged\n"},
		{desc("agent", "probe-1").Entries, "exempt: agent=probe-1 by agent=probe-* at a.yaml:5:5; the request passes and is not charged\n"},
		{desc("remote_address", "10.2.3.4, 203.0.113.9").Entries, ""},
	} {
		x := s.Explain("d", tt.entries)
		_, line, found := strings.Cut(x.String(), "exempt: ")
		line, _, _ = strings.Cut("exempt: "+line, "\n")
		if found != (tt.want != "") || found && line+"\n" != tt.want {
			t.Errorf("explained as\n%swant %s", x, tt.want)
		}
	}
	if !s.MayExempt("d", []Form{{Key: "user"}, {Key: "plan"}}) || s.MayExempt("d", []Form{{Key: "user"}}) || s.MayExempt("e", []Form{{Key: "plan"}}) {
		t.Error("MayExempt differs from the items")
	}
}

// TestExemptManyRanges checks ranges as from a file.
func TestExemptManyRanges(t *testing.T) {
	set := &rules.ValueSet{File: "office.txt", Ranges: randomRanges(1000)}
	s, ds := Compile([]rules.Config{{Domain: "d", Exempt: []rules.Descriptor{{Key: "r", Set: set}}}}, Options{})
	must.OK(t, ds.Err())
	for _, r := range set.Ranges {
		var p Plan
		if s.Plan(&p, &Request{Domain: []byte("d"), Descriptors: []Descriptor{desc("r", r.Addr().String())}}, Global{}); p.Exempt == nil {
			t.Fatalf("%s is not exempt", r)
		}
	}
}

// randomRanges returns n different ranges, half of them IPv6.
func randomRanges(n int) []rules.Range {
	r := rand.New(rand.NewPCG(3, 4))
	known := map[netip.Prefix]bool{}
	all := make([]rules.Range, 0, n)
	for len(all) < n {
		var b [16]byte
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte(b[:4])), 12+r.IntN(21))
		if len(all)%2 == 0 {
			b[0], b[1] = 0x20, 0x01
			p = netip.PrefixFrom(netip.AddrFrom16(b), 20+r.IntN(109))
		}
		if p = p.Masked(); !known[p] {
			known[p] = true
			all = append(all, rules.Range{Prefix: p})
		}
	}
	return all
}
