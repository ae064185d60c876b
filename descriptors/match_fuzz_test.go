package descriptors

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// grower generates trees and requests from fuzzed bytes. It uses few different words, so that they
// often match.
type grower struct {
	data []byte
	line int
	// leases are the names of limits that grant leases.
	leases map[string]bool
}

func (g *grower) choose(n int) int {
	if len(g.data) == 0 {
		return 0
	}
	b := g.data[0]
	g.data = g.data[1:]
	return int(b) % n
}

func pick[T any](g *grower, of ...T) T { return of[g.choose(len(of))] }

func (g *grower) tree(depth int) []rules.Descriptor {
	var ds []rules.Descriptor
	for range g.choose(12) {
		g.line++
		d := rules.Descriptor{
			Pos:            rules.Pos{File: "f", Line: g.line},
			Key:            pick(g, "a", "a", "a", "b", "a_b", "ab", "a*", "*b", "*", "a*b"),
			Value:          pick(g, "", "", "x", "y", "xy", "x*", "*y", "*", "x*y", "x**", "*x*y*", "yx"),
			ShadowMode:     rules.TrueOrNil(g.choose(5) == 4),
			QuotaMode:      g.choose(4) == 3,
			DetailedMetric: rules.TrueOrNil(g.choose(4) == 3),
			ValueToMetric:  g.choose(4) == 3,
		}
		if d.Value == "" && !isWildcard(d.Key) {
			d.Set = g.set()
		}
		d.ShareThreshold = (isWildcard(d.Key+d.Value) || d.Set != nil && d.Set.Prefix == nil) && g.choose(3) == 2
		duplicate := func(o rules.Descriptor) bool {
			if d.Set != nil && d.Set.Text() != "" || o.Set != nil && o.Set.Text() != "" {
				return o.Key == d.Key && overlap(&o, &d)
			}
			return o.Key == d.Key && o.Value == d.Value
		}
		if slices.ContainsFunc(ds, duplicate) {
			continue
		}
		switch g.choose(5) {
		case 0:
		case 1:
			d.RateLimits = []rules.Limit{{Unlimited: true, UnitMultiplier: 1}}
		case 2:
			d.List = true
			d.RateLimits = []rules.Limit{g.limit(), g.limit()}
			d.RateLimits[1].Unit = rules.Day
		default:
			d.RateLimits = []rules.Limit{g.limit()}
		}
		for i := range d.RateLimits {
			l := &d.RateLimits[i]
			l.Name = pick(g, "", "", "m", "n", "o")
			if name := pick(g, "", "", "", "m", "n", "nobody"); name != "" && name != l.Name {
				l.Replaces = []string{name}
			}
			if l.Algorithm == limiter.Concurrency || l.Reserve != nil {
				g.lease(l, i)
			}
		}
		if depth > 0 {
			d.Descriptors = g.tree(depth - 1)
		}
		ds = append(ds, d)
	}
	return ds
}

// set generates a set of values, or nil.
func (g *grower) set() *rules.ValueSet {
	pickRange := func() rules.Range {
		text := pick(g, "0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::/0", "2001:db8::/32", "2001:db8::1/128")
		return rules.Range{Prefix: netip.MustParsePrefix(text)}
	}
	switch g.choose(8) {
	case 0:
		return &rules.ValueSet{Values: []rules.SetValue{{Text: pick(g, "x", "xy", "10.1.2.3")}, {Text: pick(g, "y", "yx", "x,y")}}}
	case 1, 2:
		set := &rules.ValueSet{Ranges: []rules.Range{pickRange()}}
		if r := pickRange(); r.Prefix != set.Ranges[0].Prefix {
			set.Ranges = append(set.Ranges, r)
		}
		return set
	case 3:
		return &rules.ValueSet{Prefix: &rules.PrefixLengths{V4: 16, V6: 64}}
	default:
		return nil
	}
}

// overlap reports whether two descriptors of one key have a value or a range in common.
func overlap(a, b *rules.Descriptor) bool {
	items := func(d *rules.Descriptor) (all []string) {
		if d.Value != "" {
			all = append(all, "value "+d.Value)
		}
		if d.Set != nil {
			for _, v := range d.Set.Values {
				all = append(all, "value "+v.Text)
			}
			for _, r := range d.Set.Ranges {
				all = append(all, "range "+r.String())
			}
		}
		return all
	}
	others := items(b)
	return slices.ContainsFunc(items(a), func(item string) bool { return slices.Contains(others, item) })
}

// longestRange returns the length of the longest range of d that contains a value, or -1.
func longestRange(d *rules.Descriptor, value string) int {
	longest := -1
	p, ok := naiveAddress(value)
	if d.Set == nil || !ok {
		return longest
	}
	for _, r := range d.Set.Ranges {
		if r.Bits() <= p.Bits() && r.Contains(p.Addr()) {
			longest = max(longest, r.Bits())
		}
	}
	return longest
}

// lease sets the fields with which limit i of a descriptor grants leases.
func (g *grower) lease(l *rules.Limit, i int) {
	if l.Name == "" || g.leases[l.Name] {
		l.Name = fmt.Sprintf("lease%d-%d", g.line, i)
	}
	if g.leases == nil {
		g.leases = map[string]bool{}
	}
	g.leases[l.Name] = true
	if l.CountRefused != nil && l.Algorithm == limiter.Concurrency {
		*l.CountRefused = false
	}
}

// limit generates an hourly limit.
func (g *grower) limit() rules.Limit {
	l := rules.Limit{Unit: rules.Hour, UnitMultiplier: 1, RequestsPerUnit: pick[uint32](g, 1, 0, 3, 4096)}
	switch l.Algorithm = limiter.Algorithm(g.choose(len(rules.AlgorithmNames()) + 1)); l.Algorithm {
	case limiter.SlidingWindow:
		l.SubWindows = pick(g, nil, new(uint32(1)), new(uint32(60)))
	case limiter.TokenBucket:
		l.Burst = pick(g, nil, new(uint32(1)), new(uint32(7)), new(uint32(13_000)))
	case limiter.LeakyBucket:
		l.Slack = pick(g, nil, new(uint32(0)), new(uint32(13_000)))
		l.MaxWait = pick(g, nil, new(time.Duration(0)), new(time.Minute))
		l.MaxWaiting = pick(g, nil, new(uint32(0)), new(uint32(5)))
	default: // no fields of their own
	}
	l.CountRefused = pick(g, nil, new(false), new(true))
	if l.Algorithm != limiter.SlidingLog && l.Algorithm != limiter.LeakyBucket && l.Algorithm != limiter.Concurrency {
		p := l.Policy()
		most := uint32(max(1, min(p.Capacity(), math.MaxUint32)))
		amount := (most-1)/pick[uint32](g, 1, 2, limiter.MaxReservations) + 1
		l.Reserve = pick(g, nil, nil, nil, &rules.Reserve{Amount: amount, TTL: time.Minute, Release: true}, &rules.Reserve{First: amount, TTL: time.Hour})
	}
	return l
}

func (g *grower) request() *Request {
	req := &Request{Domain: []byte(pick(g, "d", "d", "d", "d", "e")), HitsAddend: uint32(g.choose(3))}
	for range g.choose(5) {
		var d Descriptor
		for range g.choose(4) {
			d.Entries = append(d.Entries, Entry{
				[]byte(pick(g, "a", "a", "a", "b", "a_b", "ab", "c", "a*", "aab")),
				[]byte(pick(g, "", "x", "y", "xy", "xzy", "yx", "x*", "z", "yxyx", "10.1.2.3", "10.1.2.4:80", "10.1.0.0/15", "2001:db8::1")),
			})
		}
		d.Refund, d.HasHits, d.Hits = g.choose(6) == 5, g.choose(3) == 2, pick[uint64](g, 0, 1, 2, limiter.FirstLease, limiter.FirstLease+5<<16+7, limiter.LastLease+1, limiter.FirstLease-1)
		if g.choose(5) == 4 {
			d = d.limit(pick[uint32](g, 0, 1, 2, 5000, math.MaxUint32), int32(pick(g, 0, 1, 2, 7, 8, -1)), pick[uint32](g, 0, 2, 1<<31))
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// glob is the simplest matcher of patterns with stars.
func glob(pattern, text string) bool {
	switch {
	case pattern == "":
		return text == ""
	case pattern[0] == '*':
		return glob(pattern[1:], text) || text != "" && glob(pattern, text[1:])
	default:
		return text != "" && text[0] == pattern[0] && glob(pattern[1:], text[1:])
	}
}

// plainWalk implements the matching rules literally on the configuration.
func plainWalk(ds []rules.Descriptor, entries []Entry) *rules.Descriptor {
	var hit *rules.Descriptor
	key, value := string(entries[0].Key), string(entries[0].Value)
	try := func(fits func(d *rules.Descriptor) bool) {
		for i := range ds {
			if hit == nil && fits(&ds[i]) {
				hit = &ds[i]
			}
		}
	}
	try(func(d *rules.Descriptor) bool {
		return d.Key == key && (d.Value != "" && d.Value == value ||
			d.Set != nil && slices.ContainsFunc(d.Set.Values, func(v rules.SetValue) bool { return v.Text == value }))
	})
	longest := 0
	for i := range ds {
		if ds[i].Key == key {
			longest = max(longest, longestRange(&ds[i], value))
		}
	}
	try(func(d *rules.Descriptor) bool { return d.Key == key && longestRange(d, value) == longest })
	try(func(d *rules.Descriptor) bool {
		return isWildcard(d.Key+d.Value) && glob(d.Key, key) && (d.Value == "" || glob(d.Value, value))
	})
	try(func(d *rules.Descriptor) bool {
		return d.Value == "" && d.Key == key && (d.Set == nil || d.Set.Text() == "")
	})
	if hit == nil || len(entries) == 1 {
		return hit
	}
	return plainWalk(hit.Descriptors, entries[1:])
}

func seeds(f *testing.F) {
	f.Helper()
	f.Add([]byte{})
	f.Add([]byte("\x03\x00\x02\x00\x00\x00\x00\x03\x00\x00"))
	for seed := range byte(200) {
		data := make([]byte, 600)
		x := uint32(seed)*2654435761 + 1
		for i := range data {
			x = x*1664525 + 1013904223
			data[i] = byte(x >> 24)
		}
		f.Add(data)
	}
}

func FuzzMatch(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		g := &grower{data: data}
		configs := []rules.Config{{Domain: "d", Descriptors: g.tree(2)}}
		s, ds := Compile(configs, Options{})
		must.OK(t, ds.Err())
		for range 20 {
			for _, d := range g.request().Descriptors {
				if len(d.Entries) == 0 {
					continue
				}
				want, got := 0, 0
				if hit := plainWalk(configs[0].Descriptors, d.Entries); hit != nil {
					want = hit.Pos.Line
				}
				n := s.domains["d"].match(d.Entries, new(addressReader))
				if n != nil {
					got = n.pos.Line
				}
				if got != want {
					t.Fatalf("match(%s) = line %d, want %d of %+v", d.Entries, got, want, configs[0].Descriptors)
				}
				x := s.Explain("d", d.Entries)
				if (x.Rule == nil) != (n == nil || n.rule == nil) || x.Rule != nil && x.Rule != n.rule {
					t.Fatalf("Explain(%s).Rule = %v, want the rule of %v", d.Entries, x.Rule, n)
				}
			}
		}
	})
}

// FuzzPlan compares the charged limits with those that a direct implementation finds by comparing
// names, and checks the invariants of plans.
func FuzzPlan(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		g := &grower{data: data}
		configs := []rules.Config{{Domain: "d", Descriptors: g.tree(1), AllOrNothing: new(g.choose(2) == 1)}}
		s, ds := Compile(configs, Options{})
		must.OK(t, ds.Err())
		global := Global{Quota: g.choose(3) == 2}
		p := &Plan{}
		for range 10 {
			req := g.request()
			s.Plan(p, req, global)
			checkPlan(t, configs[0], p, req)
			if want := passingQuota(configs[0], req, global); p.Batch.QuotaPass != want {
				t.Fatalf("QuotaPass = %v, want %v for %+v", p.Batch.QuotaPass, want, req)
			}
			for i := range p.Matches {
				if r := p.Matches[i].Rule; r != nil && r.RuntimeMetric {
					r.AppendMetricKey(nil, req.Descriptors[i].Entries)
				}
				MetricKeys{}.AppendOverride(nil, req.Descriptors[i].Entries)
			}
		}
	})
}

// applied returns the matching configuration of each descriptor, and its limits that are not
// replaced.
func applied(c rules.Config, req *Request) (hits []*rules.Descriptor, left [][]rules.Limit) {
	hits = make([]*rules.Descriptor, len(req.Descriptors))
	left = make([][]rules.Limit, len(req.Descriptors))
	replaced := map[string]bool{}
	for i, d := range req.Descriptors {
		if usable(c, req, d) || string(req.Domain) != "d" || len(d.Entries) == 0 {
			continue
		}
		hits[i] = plainWalk(c.Descriptors, d.Entries)
		if hits[i] == nil || len(hits[i].RateLimits) == 0 {
			hits[i] = nil
			continue
		}
		for _, l := range hits[i].RateLimits {
			for _, name := range l.Replaces {
				replaced[name] = true
			}
		}
	}
	for i, hit := range hits {
		if hit == nil {
			continue
		}
		for _, l := range hit.RateLimits {
			if !l.Unlimited && (l.Name == "" || !replaced[l.Name]) {
				left[i] = append(left[i], l)
			}
		}
	}
	return hits, left
}

// usable reports whether the descriptor's own limit applies.
func usable(c rules.Config, req *Request, d Descriptor) bool {
	o := d.Override
	if !d.HasOverride || string(req.Domain) != "d" || o.Unit < 1 || o.Unit > 7 || o.UnitMultiplier >= 1000 {
		return false
	}
	overriddenLimit := overriddenLimit(c, d)
	return overriddenLimit == nil || o.RequestsPerUnit <= rules.MaxRequests(max(limiter.FixedWindow, overriddenLimit.Algorithm))
}

// overriddenLimit returns the limit whose other fields an override uses, or nil.
func overriddenLimit(c rules.Config, d Descriptor) *rules.Limit {
	if len(d.Entries) == 0 {
		return nil
	}
	hit := plainWalk(c.Descriptors, d.Entries)
	if hit == nil || len(hit.RateLimits) == 0 || hit.RateLimits[0].Unlimited {
		return nil
	}
	return &hit.RateLimits[0]
}

// ending states whether a descriptor returns a lease, whether any descriptor does for its rule, and
// whether the rule has a limit that may be charged the cost of a request.
type ending struct{ returns, rule, costs bool }

// endings returns the ending of each descriptor.
func endings(c rules.Config, req *Request) []ending {
	all := make([]ending, len(req.Descriptors))
	of := make([]*rules.Descriptor, len(req.Descriptors))
	for i := range req.Descriptors {
		d := &req.Descriptors[i]
		if len(d.Entries) == 0 || string(req.Domain) != "d" {
			continue
		}
		hit := plainWalk(c.Descriptors, d.Entries)
		if hit != nil && slices.ContainsFunc(hit.RateLimits, func(l rules.Limit) bool { return l.Algorithm == limiter.Concurrency || l.Reserve != nil }) {
			of[i] = hit
			all[i].costs = slices.ContainsFunc(hit.RateLimits, func(l rules.Limit) bool { return l.Algorithm != limiter.Concurrency })
			all[i].returns = hits(req, d) >= limiter.FirstLease
		}
	}
	for i := range all {
		for j := range all {
			all[i].rule = all[i].rule || of[i] != nil && of[i] == of[j] && all[j].returns
		}
	}
	return all
}

// wantPolicy returns the policy of a limit, computed with exact fractions, for a descriptor with
// the given number of limits. With an override it has the override's number and window.
func wantPolicy(l *rules.Limit, o *Override, limits int, allOrNothing bool) limiter.Policy {
	or := func(n *uint32, otherwise uint32) uint32 {
		if n != nil {
			return *n
		}
		return otherwise
	}
	if l == nil {
		l = &rules.Limit{}
	}
	p := limiter.Policy{
		Algorithm: max(limiter.FixedWindow, l.Algorithm), Limit: l.RequestsPerUnit,
		Window: time.Duration(l.Unit.Seconds()) * time.Second,
	}
	p.CountRefused = p.Algorithm == limiter.FixedWindow && !allOrNothing && limits == 1
	if l.CountRefused != nil {
		p.CountRefused = *l.CountRefused
	}
	burst := new(big.Rat).SetInt64(int64(or(l.Burst, max(1, l.RequestsPerUnit))))
	if o != nil {
		if p.Limit == 0 {
			burst.SetInt64(int64(o.RequestsPerUnit))
		} else {
			burst.Mul(burst, big.NewRat(int64(o.RequestsPerUnit), int64(p.Limit)))
		}
		p.Limit = o.RequestsPerUnit
		p.Window = time.Duration(rules.Unit(o.Unit).Seconds()*int64(max(1, o.UnitMultiplier))) * time.Second
	}
	// cut returns n, capped at the number of hits in 2^60 ns.
	cut := func(n *big.Int) *big.Int {
		if p.Limit == 0 {
			return n
		}
		most := new(big.Int).Mul(big.NewInt(1<<60), big.NewInt(int64(p.Limit)))
		if most.Div(most, big.NewInt(int64(p.Window))); most.Cmp(n) < 0 {
			return most
		}
		return n
	}
	switch p.Algorithm {
	case limiter.SlidingWindow:
		p.SubWindows = or(l.SubWindows, 10)
	case limiter.TokenBucket:
		up, remainder := new(big.Int).DivMod(burst.Num(), burst.Denom(), new(big.Int))
		if remainder.Sign() > 0 {
			up.Add(up, big.NewInt(1))
		}
		p.Burst = uint32(max(1, min(cut(up).Uint64(), math.MaxUint32)))
	case limiter.LeakyBucket:
		p.Slack = uint32(cut(big.NewInt(int64(or(l.Slack, 10))+1)).Uint64() - 1)
		p.MaxWaiting = or(l.MaxWaiting, 100)
		if l.MaxWait != nil {
			p.MaxWait = *l.MaxWait
		}
	default: // no fields of their own
	}
	return p
}

// passingQuota implements envoyproxy/ratelimit: it returns true if a descriptor in quota mode that
// is not unlimited has the status OK.
func passingQuota(c rules.Config, req *Request, global Global) bool {
	hits, left := applied(c, req)
	for i, d := range req.Descriptors {
		override := usable(c, req, d)
		switch hit := hits[i]; {
		case hit != nil && hit.RateLimits[0].Unlimited:
		case override, len(left[i]) == 0:
			if global.Quota && (!override || d.Refund) {
				return true
			}
		case (hit.QuotaMode || global.Quota) && (rules.ValueOr(hit.ShadowMode, false) || d.Refund):
			return true
		}
	}
	return false
}

func checkPlan(t *testing.T, c rules.Config, p *Plan, req *Request) {
	t.Helper()
	charges := p.Batch.Charges
	if len(p.Matches) != len(req.Descriptors) || len(p.Limits) != len(charges) {
		t.Fatalf("%d matches of %d descriptors, %d limits of %d charges", len(p.Matches), len(req.Descriptors), len(p.Limits), len(charges))
	}
	known := string(req.Domain) == "d"
	if p.KnownDomain != known {
		t.Fatalf("KnownDomain = %v", p.KnownDomain)
	}
	hits, left := applied(c, req)
	at, group := 0, int32(-1)
	ends := endings(c, req)
	for i := range p.Matches {
		m, d := &p.Matches[i], req.Descriptors[i]
		override := usable(c, req, d)
		if m.Override != override || m.IgnoredOverride != (d.HasOverride && known && !override) {
			t.Fatalf("Matches[%d] = %+v for %+v", i, m, d)
		}
		if (m.Rule != nil) != (hits[i] != nil) || m.Rule != nil && m.Rule.Pos() != hits[i].Pos {
			t.Fatalf("Matches[%d].Rule = %+v, want %+v", i, m.Rule, hits[i])
		}
		want := len(left[i])
		if override {
			want = 1
		}
		if m.Count != want || known && m.First != at {
			t.Fatalf("Matches[%d] has %d charges from %d, want %d from %d", i, m.Count, m.First, want, at)
		}
		if replaced := hits[i] != nil && want == 0 && !hits[i].RateLimits[0].Unlimited; m.Replaced != replaced {
			t.Fatalf("Matches[%d].Replaced = %v", i, m.Replaced)
		}
		if want > 0 && (group < 0 || !*c.AllOrNothing) {
			group++
		}
		for ; at < m.First+m.Count; at++ {
			ch := charges[at]
			charged, refund, reserve := m.Hits, d.Refund, false
			switch reserves := ch.Policy.Reserve != nil; {
			case ends[i].returns && !ch.Policy.UsesLeases():
				charged, refund = 0, true
			case ends[i].returns:
				refund = true
			case ch.Policy.Algorithm == limiter.Concurrency && (ends[i].rule || d.HasHits && ends[i].costs), reserves && d.Refund:
				charged = 0
			case reserves && !ends[i].rule && d.HasHits:
				reserve = m.Hits == 0
			case reserves && !ends[i].rule && m.Hits <= 1:
				charged, reserve = p.Limits[at].Reservation.Hits(ch.Policy), true
			}
			if ch.Policy != &p.Limits[at].Policy || ch.Group != group || ch.Refund != refund || ch.Hits != charged || ch.Reserve != reserve {
				t.Fatalf("Charges[%d] = %+v", at, ch)
			}
			if override != (p.Limits[at].Index < 0) {
				t.Fatalf("Limits[%d] = %+v", at, p.Limits[at])
			}
			var want limiter.Policy
			if override {
				limits := 1
				if l := overriddenLimit(c, d); l != nil {
					limits = len(plainWalk(c.Descriptors, d.Entries).RateLimits)
				}
				want = wantPolicy(overriddenLimit(c, d), &d.Override, limits, *c.AllOrNothing)
			} else {
				l := &left[i][at-m.First]
				if p.Limits[at].Name != l.Name {
					t.Fatalf("Limits[%d] = %+v, want %+v", at, p.Limits[at], l)
				}
				want = wantPolicy(l, nil, len(hits[i].RateLimits), *c.AllOrNothing)
			}
			if r := ch.Policy.Reserve; r != nil {
				configured := overriddenLimit(c, d)
				if !override {
					configured = &left[i][at-m.First]
				}
				reserve := new(limiter.Reserve)
				if configured.Reserve.Configure(reserve, &want); r.Life() != reserve.Life() || r.MaxReservations() != reserve.MaxReservations() || r.ReleasesWithoutCost() != reserve.ReleasesWithoutCost() {
					t.Fatalf("Charges[%d].Policy.Reserve = %+v, want %+v", at, r, reserve)
				}
			}
			if withoutDerived(*ch.Policy) != want {
				t.Fatalf("Charges[%d].Policy = %+v, want %+v", at, *ch.Policy, want)
			}
		}
	}
	if at != len(charges) {
		t.Fatalf("%d charges, %d of them in matches: %s", len(charges), at, fmt.Sprint(p.Matches))
	}
}
