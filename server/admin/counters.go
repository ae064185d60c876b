package admin

import (
	"context"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/live"
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
	// Counters has one element for each limit of the rule, but one for those that rows of tables give the same counter.
	Counters []CounterState `json:"counters"`
	// Divided is there if Envoys divide the limit: what is known of the bucket.
	Divided *live.QuotaBucket `json:"divided,omitempty"`
}

// CounterState is the counter of one limit.
type CounterState struct {
	// Limit is the limit for people, such as `60/minute`; Name is its name.
	Limit string `json:"limit"`
	Name  string `json:"name,omitempty"`
	// Key is the hash that stands for the counter among the keys that are denied; see [live.Key].
	Key string `json:"key,omitempty"`
	// Denied says that it is among them: that it was denied lately.
	Denied bool `json:"denied,omitempty"`
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
	// It is 0 if nothing is used. ResetsAt is the time at which that happens, in UTC, or in the zone of the limit's
	// calendar, which Timezone names.
	ResetsIn float64    `json:"resets_in_seconds"`
	ResetsAt *time.Time `json:"resets_at,omitempty"`
	// Penalty is the step of the penalty that the counter is under, from 1, and PenaltyFor how many seconds it takes
	// until the limit may admit again. Both are absent without one.
	Penalty    int     `json:"penalty,omitempty"`
	PenaltyFor float64 `json:"penalty_for_seconds,omitempty"`
	Timezone   string  `json:"timezone,omitempty"`
	// Forgotten is what was used before a reset.
	Forgotten uint64 `json:"forgotten,omitempty"`
	// Held is what requests hold under leases, of what is used. It is nil for limits that give none, and where a
	// store has the counters.
	Held *HeldState `json:"held,omitempty"`
	// Reserves is what the next request reserves, 0 if the limit has no reserve. Estimated says that it is what nine
	// of ten have cost.
	Reserves  uint64 `json:"reserves,omitempty"`
	Estimated bool   `json:"estimated,omitempty"`
}

// HeldState is what requests hold under leases on the counter of one limit.
type HeldState struct {
	Requests uint64 `json:"requests"`
	Hits     uint64 `json:"hits"`
	// OldestFor is how many seconds the oldest has been held, and FirstFreeIn how many it takes until that is free, or
	// charged, by itself. Both are 0 if nothing is held.
	OldestFor   float64 `json:"oldest_for_seconds"`
	FirstFreeIn float64 `json:"first_free_in_seconds"`
}

// Counters looks up the counters of a descriptor as they are at the time now. It changes none, and an absent one stays
// absent. With reset it resets them first, and the report has the hits that each had used. An error means that there are no
// rules, or that a store does not answer. The text is the descriptor as people write it.
func (a *API) Counters(ctx context.Context, now limiter.Time, domain, text string, d descriptors.Descriptor, reset bool) (*CounterReport, error) {
	rules, err := a.service.Active()
	if err != nil {
		return nil, err
	}
	walk := rules.Set.Explain(domain, d.Entries)
	report := &CounterReport{
		Domain: domain, Descriptor: text, ConfigHash: rules.Set.Hash,
		Explanation: walk.String(), Reason: walk.Reason, Counters: []CounterState{},
	}
	look := rules.Look(domain, d)
	switch m := &look.Plan.Matches[0]; {
	case m.Override:
		report.Reason = "the request's own limit applies"
	case m.Rule != nil:
		report.Rule = m.Rule.Path()
		if m.Rule.Divided() != nil {
			report.Divided = a.quotaOf(time.Unix(0, int64(now)), domain, d.Entries)
		}
		if m.Rule.Unlimited {
			report.Reason = "an unlimited rule has no counters"
		}
		if m.IgnoredOverride {
			report.Reason = "the request's own limit cannot be used with this rule: the rule's own applies"
		}
	}
	b := &look.Plan.Batch
	forgotten := make([]uint64, len(b.Charges))
	for i := 0; reset && i < len(forgotten); i++ {
		if forgotten[i], err = look.Reset(ctx, now, i); err != nil {
			return nil, err
		}
		rules.Live[look.Plan.DomainIndex].Forget(b.Charges[i].ID)
	}
	if err := look.Decide(now); err != nil {
		return nil, err
	}
	for i := range b.Charges {
		c := a.counterState(now, rules, look, i)
		c.Forgotten = forgotten[i]
		report.Counters = append(report.Counters, c)
	}
	return report, nil
}

// counterState returns the state of the counter of charge i of a look that was decided.
func (a *API) counterState(now limiter.Time, rules *answer.Active, look *answer.Look, i int) CounterState {
	b := &look.Plan.Batch
	charge, limit, d := &b.Charges[i], look.Plan.Limits[i], &b.Decisions[i]
	c := CounterState{
		Limit: limit.String(), Name: limit.Name, Key: a.service.Live().Hash(charge.ID), Shadow: limit.Candidate,
		Denied: rules.Live[look.Plan.DomainIndex].Lists(charge.ID),
		Used:   d.Before, Capacity: charge.Policy.Capacity(), Remaining: d.Remaining, Over: d.Over,
	}
	if held := look.Held(now, i); held != nil {
		c.Held = &HeldState{held.Requests, held.Hits, held.Oldest.Seconds(), held.Next.Seconds()}
	}
	if r := limit.Reservation; r != nil {
		c.Reserves, c.Estimated = r.Hits(charge.Policy), r.Estimated()
	}
	if d.Penalty > 0 {
		c.Penalty, c.PenaltyFor = int(d.Penalty), d.RetryAfter.Seconds()
	}
	if (d.Before > 0 || d.Penalty > 0) && limit.HasWindow() {
		at := time.Unix(0, int64(now)).Add(d.Reset).UTC()
		if calendar := limit.Policy.Calendar; calendar != nil {
			at, c.Timezone = at.In(calendar.Zone()), calendar.Zone().String()
		}
		c.ResetsIn, c.ResetsAt = d.Reset.Seconds(), &at
	}
	return c
}
