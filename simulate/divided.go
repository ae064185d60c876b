package simulate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	quota "github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/rlqs/filter"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// division simulates Envoys with the filter rate_limit_quota, which decide descriptors of rules
// with quota.
type division struct {
	fleet *filter.Fleet
	// envoy is the Envoy of the current request, and start the time of the first request.
	envoy int
	start limiter.Time

	limits map[*descriptors.Rule]*quota.Limit
	// dividedReq has the descriptors of a request that Envoys decide, and restReq those that the
	// service decides. quotas is the plan of dividedReq.
	dividedReq, restReq descriptors.Request
	quotas              descriptors.Plan
	// denied reports that Envoys denied the last request.
	denied bool
}

// bucketBytes is the memory of an Envoy's bucket, including the divider's state.
const bucketBytes = 350

// newDividedVariant returns the variant in which Envoys divide the limits of the rules.
func newDividedVariant(o *Options) (*variant, error) {
	switch {
	case !o.Rules.Divides():
		return nil, errors.New(`--rlqs: no rule has "quota", so Envoys have nothing to divide; add "quota: {}" to a token_bucket, or simulate several services with --replicas`)
	case len(o.Against) > 0:
		return nil, errors.New("--rlqs and --against exclude each other; simulate other rules separately")
	case o.Replicas > 1:
		return nil, errors.New("--rlqs and --replicas exclude each other; one sluice divides a limit among all Envoys")
	case o.Recommend > 0:
		return nil, errors.New("--rlqs and --recommend exclude each other; recommendations are for one counter")
	}
	s, err := newVariant(o.Rules, fmt.Sprintf("%d Envoys", o.Envoys), o)
	if err != nil {
		return nil, err
	}
	s.division = &division{fleet: filter.NewFleet(o.Envoys, true), limits: map[*descriptors.Rule]*quota.Limit{}, start: -1}
	return s, nil
}

// decideDivided decides the descriptors of rules with quota and returns the others. As in Envoy, a
// request counts 1 and has neither an override nor a refund.
func (s *variant) decideDivided(at limiter.Time, req *descriptors.Request) (rest *descriptors.Request, denied bool) {
	d := s.division
	d.denied = false
	if d.start < 0 {
		d.start = at
	}
	d.dividedReq.Domain, d.dividedReq.Descriptors = req.Domain, d.dividedReq.Descriptors[:0]
	d.restReq.Domain, d.restReq.HitsAddend, d.restReq.Descriptors = req.Domain, req.HitsAddend, d.restReq.Descriptors[:0]
	for i := range req.Descriptors {
		descriptor := &req.Descriptors[i]
		switch rule := s.set.Match(req.Domain, descriptor.Entries); {
		case rule == nil || rule.Divided() == nil:
			d.restReq.Descriptors = append(d.restReq.Descriptors, *descriptor)
		case !descriptor.Refund:
			d.dividedReq.Descriptors = append(d.dividedReq.Descriptors, descriptors.Descriptor{Entries: descriptor.Entries})
		}
	}
	if len(d.dividedReq.Descriptors) == 0 {
		return &d.restReq, false
	}
	s.set.Plan(&d.quotas, &d.dividedReq, descriptors.Global{ReadOnly: true}) // exempt is not for quotas
	b := &d.quotas.Batch
	b.Decisions = slices.Grow(b.Decisions[:0], len(b.Charges))[:len(b.Charges)]
	clear(b.Decisions)
	for i := range b.Charges {
		c := &b.Charges[i]
		passes := d.fleet.Request(quota.Time(at-d.start), d.envoy, quota.Bucket{c.ID.Hi, c.ID.Lo}, d.limit(d.quotas.Limits[i].Rule))
		if !passes {
			b.Decisions[i].Over, b.Decisions[i].Denied, d.denied = true, true, true
		}
	}
	s.tally.addCharges(&d.dividedReq, &d.quotas, 0)
	return &d.restReq, d.denied
}

// decidedPlan returns the plan that decided the last call.
func (s *variant) decidedPlan() *descriptors.Plan {
	if s.division != nil && s.division.denied {
		return &s.quotas
	}
	return &s.plan
}

func (d *division) limit(r *descriptors.Rule) *quota.Limit {
	l := d.limits[r]
	if l == nil {
		l = r.QuotaLimit(false)
		d.limits[r] = l
	}
	return l
}

// newComparison compares a variant with the rules.
func (r *run) newComparison(s *variant) report.Comparison {
	most := ranking{n: 3, score: func(k *key) uint64 { return uint64(k.moreDenied) }}
	for i := range s.tally.keys.n {
		most.add(i, s.tally.keys.at(i))
	}
	c := report.Comparison{Outcome: s.outcome(), More: s.onlyDenied, Fewer: s.onlyAdmitted, MostDenied: s.tally.reportKeys(&most)}
	c.MoreKeys = s.tally.keysOver() - r.rules.tally.keysOver()
	return c
}

// newDivision reports the Envoys' decisions for each limit with quota.
func (r *run) newDivision() *report.Division {
	out := &report.Division{Comparison: r.newComparison(r.divided), Envoys: r.options.Envoys, WithoutShare: r.divided.fleet.UnassignedAllowed(), Divided: []report.Divided{}}
	for _, i := range r.divided.tally.active {
		envoys, counter := &r.divided.tally.limits[i], &r.rules.tally.limits[i]
		if envoys.limit == nil || envoys.limit.Rule.Divided() == nil {
			continue
		}
		l := r.divided.tally.reportLimit(i)
		out.Divided = append(out.Divided, report.Divided{
			Rule: l.Rule, Name: l.Name, Limit: l.Limit, Place: l.Place, Requests: envoys.hits, Envoys: envoys.hits - envoys.over, Counter: counter.hits - counter.over,
		})
	}
	return out
}
