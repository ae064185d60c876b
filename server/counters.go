package server

import (
	"context"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// CounterReport says which rule a running sluice applies to a descriptor, step by step, and what
// its counters hold. The debug listener serves it as JSON.
type CounterReport struct {
	Domain     string `json:"domain"`
	Descriptor string `json:"descriptor"`
	// ConfigHash is that of the rules in force.
	ConfigHash string `json:"config_hash"`
	// Explanation describes the walk through the rules, in lines for people.
	Explanation string `json:"explanation"`
	// Rule is the rule's path, empty where none matched or an override applies.
	Rule string `json:"rule,omitempty"`
	// Reason says why there are no counters, or that an override was ignored.
	Reason string `json:"reason,omitempty"`
	// Counters has one element for each limit of the rule.
	Counters []CounterState `json:"counters"`
}

// CounterState is the counter of one limit.
type CounterState struct {
	// Limit is the limit for people, such as `60/minute`; Name is its name.
	Limit string `json:"limit"`
	Name  string `json:"name,omitempty"`
	// Shadow says that the limit is a candidate, which denies nothing.
	Shadow bool `json:"shadow,omitempty"`
	// Used is how much of Capacity is used. Capacity is what the limit admits at once. Used
	// may be more where denied hits count. Remaining is how many single hits would pass now,
	// including those that would be held.
	Used      uint64 `json:"used"`
	Capacity  uint64 `json:"capacity"`
	Remaining uint64 `json:"remaining"`
	// Over reports whether more is used than the limit admits.
	Over bool `json:"over"`
	// ResetsIn is how many seconds it takes until the counter equals a new one. For one that
	// is over, it is how long until it no longer is. For a fixed window it is always its end.
	// It is 0 if nothing is used. ResetsAt is the time at which that happens.
	ResetsIn float64    `json:"resets_in_seconds"`
	ResetsAt *time.Time `json:"resets_at,omitempty"`
	// Forgotten is what was used before a reset.
	Forgotten uint64 `json:"forgotten,omitempty"`
}

// A lookup is a descriptor with its charges.
type lookup struct {
	report CounterReport
	call   Call
}

// lookUp plans a peek at the counters of one descriptor.
func (s *Service) lookUp(q CounterQuery, d descriptors.Descriptor) (*lookup, error) {
	rules := s.rules.Load()
	if rules == nil {
		return nil, errNoRules
	}
	x := rules.set.Explain(q.Domain, d.Entries)
	l := &lookup{report: CounterReport{
		Domain: q.Domain, Descriptor: q.Descriptor, ConfigHash: rules.set.Hash,
		Explanation: x.String(), Reason: x.Reason, Counters: []CounterState{},
	}}
	d.HasHits, d.Hits = true, 0 // a peek
	c := &l.call
	c.rules = rules
	c.decoder.req = descriptors.Request{Domain: []byte(q.Domain), Descriptors: []descriptors.Descriptor{d}}
	s.plan(c, descriptors.Global{}, time.Minute) // the longest that any limit holds a reply
	switch m := &c.plan.Matches[0]; {
	case m.Override:
		l.report.Reason = "the request's own limit applies"
	case m.Rule != nil:
		l.report.Rule = m.Rule.Path()
		if m.Rule.Unlimited {
			l.report.Reason = "an unlimited rule has no counter"
		}
		if m.IgnoredOverride {
			l.report.Reason = "the request's own limit cannot be used with this rule: the rule's own applies"
		}
	}
	return l, nil
}

// peek fills in the counters as they are at the time now. It changes none, and an absent
// one stays absent. It returns an error if a store does not answer.
func (l *lookup) peek(now limiter.Time, s *Service) error {
	b := &l.call.plan.Batch
	if err := l.call.await(s.decide(now, &l.call, l.call.waiting())); err != nil {
		return err
	}
	for i := range b.Charges {
		limit, d := l.call.plan.Limits[i], &b.Decisions[i]
		c := CounterState{
			Limit: limit.String(), Name: limit.Name, Shadow: limit.Candidate,
			Used: d.Before, Capacity: b.Charges[i].Policy.Capacity(), Remaining: d.Remaining, Over: d.Over,
		}
		if d.Before > 0 {
			at := time.Unix(0, int64(now)).Add(d.Reset).UTC()
			c.ResetsIn, c.ResetsAt = d.Reset.Seconds(), &at
		}
		l.report.Counters = append(l.report.Counters, c)
	}
	return nil
}

// reset makes the counters as new at the time now. It returns what each had used, or an error if a
// store does not answer.
func (l *lookup) reset(ctx context.Context, now limiter.Time, s *Service) (used []uint64, err error) {
	b := &l.call.plan.Batch
	used = make([]uint64, len(b.Charges))
	for i := range b.Charges {
		if used[i], err = s.decider.Reset(ctx, now, b, l.call.plan.Names, i); err != nil {
			return nil, &storeError{err}
		}
	}
	return used, nil
}
