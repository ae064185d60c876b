package descriptors

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// planText returns a plan as text, without addresses of its memory.
func planText(p *Plan) string {
	var b strings.Builder
	fmt.Fprintln(&b, p.KnownDomain, p.DomainName, p.DomainIndex, p.Candidates, p.Leases, p.Batch.QuotaPass)
	for _, m := range p.Matches {
		own := m.override != nil && m.override.leased
		m.override, m.Unlimited = nil, nil
		fmt.Fprintln(&b, m, own)
	}
	for i, l := range p.Limits {
		c, policy := p.Batch.Charges[i], p.Batch.Charges[i].Policy.Clone(nil)
		if r := policy.Reserve; r != nil {
			fmt.Fprint(&b, r.Life(), r.MaxReservations(), r.ReleasesWithoutCost(), " ")
		}
		c.Policy, policy.Reserve = nil, nil
		fmt.Fprintln(&b, c, policy, l.Name, l.Label, l.Reservation, l.Index, l.RequestsPerUnit, l.Unit, l.UnitMultiplier, l.Row, l.Candidate)
	}
	return b.String() + fmt.Sprintf("%q", p.Names)
}

// TestPlanReuse plans random requests under several sets, with one reused plan and with new plans.
// The results must be equal.
func TestPlanReuse(t *testing.T) {
	opt, _ := withTable(t, "user,requests_per_unit,unit,burst,unlimited\nal,20,second,5,\nbo,,,,true\ncy,9,day,,\n")
	var sets []*Set
	for _, descriptors := range []string{
		`{key: user, rate_limits: [{name: s, requests_per_unit: 100, unit: day, table: t, reserve: {p90: true, first: 10, ttl: 3s}},
			{name: x, unit: minute, requests_per_unit: 3, algorithm: concurrency},
			{name: c, shadow: true, unit: hour, requests_per_unit: 7, algorithm: token_bucket, table: t}]},
		 {key: w*, rate_limit: {unit: hour, requests_per_unit: 9, name: p, algorithm: concurrency}},
		 {key: plain, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: p}]}}`,
		`{key: user, rate_limits: [{requests_per_unit: 100, unit: day, table: t, algorithm: sliding_window}, {requests_per_unit: 50, unit: day, table: t, algorithm: token_bucket}]}, {key: plain, rate_limit: {unlimited: true}}`,
		`{key: user, value: al, quota_mode: true, rate_limit: {requests_per_unit: 100, unit: day}}`,
	} {
		set := load(t, opt, "domain: d\ndescriptors: ["+descriptors+"]")
		if len(sets) > 0 {
			set.Inherit(sets[len(sets)-1])
		}
		sets = append(sets, set)
	}
	namer, candidates, leases := NewNamer("p", []byte("s")), 0, 0
	for seed := range uint64(3) {
		r, reused := rand.New(rand.NewPCG(seed, 3)), Plan{}
		pick := func(texts ...string) []byte { return []byte(texts[r.IntN(len(texts))]) }
		for range 400 {
			req := &Request{Domain: pick("d", "d", "d", "none"), HitsAddend: r.Uint32N(3)}
			for range r.IntN(6) {
				d := Descriptor{Entries: []Entry{{pick("user", "user", "way", "plain", "none"), pick("al", "bo", "cy", "di")}}}
				if d.HasHits = r.IntN(3) == 0; d.HasHits {
					d.Hits, d.Refund = []uint64{0, 1, 30, limiter.FirstLease + 5, limiter.LastLease}[r.IntN(5)], r.IntN(3) == 0
				}
				if d.HasOverride = r.IntN(4) == 0; d.HasOverride {
					d.Override = Override{r.Uint32N(30), r.Int32N(7), r.Uint32N(3)}
				}
				req.Descriptors = append(req.Descriptors, d)
			}
			set, global, fresh := sets[r.IntN(len(sets))], Global{Quota: r.IntN(8) == 0, ReadOnly: r.IntN(8) == 0}, Plan{}
			for _, p := range []*Plan{&fresh, &reused} {
				set.Plan(p, req, global)
				namer.Name(p, req)
			}
			if candidates += len(fresh.Candidates); fresh.Leases {
				leases++
			}
			if got, want := planText(&reused), planText(&fresh); got != want {
				t.Fatalf("seed %d: a reused plan is\n%s\na new plan is\n%s", seed, got, want)
			}
		}
	}
	if candidates < 100 || leases < 100 {
		t.Errorf("weak test: %d candidates, %d requests with leases", candidates, leases)
	}
}
