package simulate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/quota"
	"github.com/sluice-ratelimit/sluice/quota/filter"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// division is Envoys with the filter rate_limit_quota, which decide what leads to rules with quota.
type division struct {
	fleet *filter.Fleet
	// envoy is where the request goes that is decided, and begun the time of the first.
	envoy int
	begun limiter.Time

	limits map[*descriptors.Rule]*quota.Limit
	// own and rest are the descriptors of a request that Envoys decide and that they ask about.
	own, rest descriptors.Request
	quotas    descriptors.Plan
	// denied says that Envoys denied the last request.
	denied bool
}

// bytesOfBucket is what a bucket of an Envoy takes, with what the divider keeps of it.
const bytesOfBucket = 350

// newDivided returns the side in which Envoys divide the limits of the rules.
func newDivided(o *Options) (*side, error) {
	switch {
	case !o.Rules.Divides():
		return nil, errors.New(`--rlqs: no rule has "quota", so that Envoys have nothing to divide: add "quota: {}" to a token_bucket, or say how many services count with --replicas`)
	case len(o.Against) > 0:
		return nil, errors.New("--rlqs compares Envoys with one counter by the same rules: leave --against out, and simulate other rules by themselves")
	case o.Replicas > 1:
		return nil, errors.New("--rlqs and --replicas exclude each other: one sluice divides a limit among all Envoys")
	case o.Recommend > 0:
		return nil, errors.New("--rlqs and --recommend exclude each other: numbers are recommended for one counter; simulate those that you have in mind")
	}
	s, err := newSide(o.Rules, fmt.Sprintf("%d Envoys", o.Envoys), o)
	if err != nil {
		return nil, err
	}
	s.division = &division{fleet: filter.NewFleet(o.Envoys, true), limits: map[*descriptors.Rule]*quota.Limit{}, begun: -1}
	return s, nil
}

// divide decides the descriptors of a request that lead to rules with quota, and returns the others. As in Envoy a
// request counts 1, and brings neither a limit nor a refund.
func (s *side) divide(at limiter.Time, req *descriptors.Request) (rest *descriptors.Request, denied bool) {
	d := s.division
	d.denied = false
	if d.begun < 0 {
		d.begun = at
	}
	d.own.Domain, d.own.Descriptors = req.Domain, d.own.Descriptors[:0]
	d.rest.Domain, d.rest.HitsAddend, d.rest.Descriptors = req.Domain, req.HitsAddend, d.rest.Descriptors[:0]
	for i := range req.Descriptors {
		of := &req.Descriptors[i]
		switch rule := s.set.Match(req.Domain, of.Entries); {
		case rule == nil || rule.Divided() == nil:
			d.rest.Descriptors = append(d.rest.Descriptors, *of)
		case !of.Refund:
			d.own.Descriptors = append(d.own.Descriptors, descriptors.Descriptor{Entries: of.Entries})
		}
	}
	if len(d.own.Descriptors) == 0 {
		return &d.rest, false
	}
	s.set.Plan(&d.quotas, &d.own, descriptors.Global{})
	b := &d.quotas.Batch
	b.Decisions = slices.Grow(b.Decisions[:0], len(b.Charges))[:len(b.Charges)]
	clear(b.Decisions)
	for i := range b.Charges {
		c := &b.Charges[i]
		passes := d.fleet.Request(quota.Time(at-d.begun), d.envoy, quota.Bucket{c.ID.Hi, c.ID.Lo}, d.limit(d.quotas.Limits[i].Rule))
		if !passes {
			b.Decisions[i].Over, b.Decisions[i].Denied, d.denied = true, true, true
		}
	}
	s.tally.add(&d.own, &d.quotas, 0)
	return &d.rest, d.denied
}

// decided is the plan by which the last call was denied or admitted.
func (s *side) decided() *descriptors.Plan {
	if s.division != nil && s.division.denied {
		return &s.quotas
	}
	return &s.plan
}

// limit returns what is divided of a rule.
func (d *division) limit(r *descriptors.Rule) *quota.Limit {
	l := d.limits[r]
	if l == nil {
		l = r.QuotaLimit(false)
		d.limits[r] = l
	}
	return l
}

// comparison is what a side makes of the requests, beside the first.
func (r *run) comparison(s *side) report.Comparison {
	most := ranking{n: 3, of: func(k *key) uint64 { return uint64(k.more) }}
	for i := range s.tally.keys.n {
		most.take(i, s.tally.keys.at(i))
	}
	c := report.Comparison{Outcome: s.outcome(), More: s.more, Fewer: s.fewer, Most: s.tally.named(&most)}
	c.MoreKeys = s.tally.keysOver() - r.rules.tally.keysOver()
	return c
}

// division reports what the Envoys made of each limit with quota.
func (r *run) division() *report.Division {
	out := &report.Division{Comparison: r.comparison(r.divided), Envoys: r.options.Envoys, Without: r.divided.fleet.UnassignedAllowed(), Divided: []report.Divided{}}
	for _, i := range r.divided.tally.touched {
		of, by := &r.divided.tally.limits[i], &r.rules.tally.limits[i]
		if of.limit == nil || of.limit.Rule.Divided() == nil {
			continue
		}
		l := r.divided.tally.limit(i)
		out.Divided = append(out.Divided, report.Divided{
			Rule: l.Rule, Name: l.Name, Limit: l.Limit, Place: l.Place, Requests: of.hits, Envoys: of.hits - of.over, Counter: by.hits - by.over,
		})
	}
	return out
}
