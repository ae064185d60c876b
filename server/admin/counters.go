package admin

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// CounterReport describes the rule that applies to a descriptor and the state of its counters. The
// debug listener serves it as JSON.
type CounterReport struct {
	Domain     string `json:"domain"`
	Descriptor string `json:"descriptor"`
	// ConfigHash is the hash of the active rules.
	ConfigHash string `json:"config_hash"`
	// Explanation describes step by step how the descriptor matches the rules.
	Explanation string `json:"explanation"`
	// Rule is the rule's path, empty if no rule matched or an override applies.
	Rule string `json:"rule,omitempty"`
	// Limits contains the limits of the rule.
	Limits []RuleLimit `json:"limits,omitempty"`
	// Reason explains why there are no counters, or that an override was ignored.
	Reason string `json:"reason,omitempty"`
	// Counters contains an element for each limit of the rule. Limits that share a counter because
	// of table rows have a single element.
	Counters []CounterState `json:"counters"`
	// Next describes the next request of one hit. It is nil if Divided is set, and without counters.
	Next *NextRequest `json:"next_request,omitempty"`
	// Divided is the bucket of the descriptor if the limit is divided among Envoys.
	Divided *live.QuotaBucket `json:"divided,omitempty"`

	exempt bool
}

// RuleLimit is a limit of a rule. Its fields are those of [live.RuleState].
type RuleLimit struct {
	Limit  string `json:"limit"`
	Name   string `json:"name,omitempty"`
	At     string `json:"at"`
	Shadow bool   `json:"shadow,omitempty"`
	Soft   bool   `json:"soft,omitempty"`
}

// CounterState is the state of the counter of a limit.
type CounterState struct {
	// Limit is the limit, such as `60/minute`, Name its name, and Unit that of its hits; see
	// [live.UnitOf].
	Limit string `json:"limit"`
	Name  string `json:"name,omitempty"`
	Unit  string `json:"unit"`
	// Key is the hash of the counter among denied keys; see [live.Key].
	Key string `json:"key,omitempty"`
	// Denied is true if the counter is among the denied keys.
	Denied bool `json:"denied,omitempty"`
	// Shadow is true if the limit is a candidate, and Soft if it is soft. Neither denies.
	Shadow bool `json:"shadow,omitempty"`
	Soft   bool `json:"soft,omitempty"`
	// Capacity is the number of hits that the limit admits at once. Used is the number of used
	// hits; it may exceed Capacity if denied hits count. Remaining is the number of single hits
	// that would be admitted now, including those that would be delayed.
	Used      uint64 `json:"used"`
	Capacity  uint64 `json:"capacity"`
	Remaining uint64 `json:"remaining"`
	// Over is true if the limit is exceeded.
	Over bool `json:"over"`
	// ResetsIn is the number of seconds until no hit is used any more or, if the limit is exceeded,
	// until it is no longer exceeded. For a fixed window it is always the time until the end of the
	// window. It is 0 if no hit is used. ResetsAt is the corresponding time, in UTC or in the time
	// zone of the limit's calendar. Timezone is the name of that time zone.
	ResetsIn float64    `json:"resets_in_seconds"`
	ResetsAt *time.Time `json:"resets_at,omitempty"`
	// Penalty is the current step of a penalty, from 1, and PenaltyFor the remaining time of the
	// penalty in seconds. Both are absent if there is no penalty.
	Penalty    int     `json:"penalty,omitempty"`
	PenaltyFor float64 `json:"penalty_for_seconds,omitempty"`
	Timezone   string  `json:"timezone,omitempty"`
	// Held describes the leases. It is nil if the limit grants none, or if the counters are in a
	// store.
	Held *HeldState `json:"held,omitempty"`
	// Reserves is the number of hits that the next request reserves, 0 without reserve. If
	// Estimated is set, it is the 90th percentile of past costs. Samples is the number of known
	// costs. From SamplesNeeded on, the initial estimate no longer affects it.
	Reserves      uint64 `json:"reserves,omitempty"`
	Estimated     bool   `json:"estimated,omitempty"`
	Samples       int    `json:"samples,omitempty"`
	SamplesNeeded int    `json:"samples_needed,omitempty"`
}

// NextRequest describes whether the next request of one hit is denied.
type NextRequest struct {
	Denied bool `json:"denied"`
	// By is the name of the limit that denies the request longest, or else the limit.
	By string `json:"by,omitempty"`
	// For is the number of seconds until the limits admit the request, 0 if that depends on the ends of
	// other requests or is not known. If AtMost is true, they may admit it earlier.
	For    float64 `json:"for_seconds,omitempty"`
	AtMost bool    `json:"at_most,omitempty"`
}

// HeldState describes the leases of a counter.
type HeldState struct {
	Requests uint64 `json:"requests"`
	Hits     uint64 `json:"hits"`
	// OldestFor is the age in seconds of the oldest lease, and FirstFreeIn the number of seconds
	// until its expiry. Both are 0 without leases.
	OldestFor   float64 `json:"oldest_for_seconds"`
	FirstFreeIn float64 `json:"first_free_in_seconds"`
}

// NewCounterReport returns a report of a descriptor, which is also given as text, without counters.
func NewCounterReport(set *descriptors.Set, domain, text string, entries []descriptors.Entry) *CounterReport {
	x := set.Explain(domain, entries)
	report := &CounterReport{
		Domain: domain, Descriptor: text, ConfigHash: set.Hash, Explanation: x.String(), Reason: x.Reason, Counters: []CounterState{}, exempt: x.Exempt != "",
	}
	if x.Rule != nil {
		report.Rule = x.Rule.Path()
		for _, l := range slices.Concat(x.Rule.Limits, x.Rule.Candidates()) {
			report.Limits = append(report.Limits, RuleLimit{l.String(), l.Name, l.Pos.String(), l.InShadow(), l.Soft})
		}
	}
	return report
}

// Counters reads the counters of a descriptor at the time now. It neither changes nor creates
// counters. It returns an error if there are no rules or a store does not respond. text is the
// descriptor as text.
func (a *API) Counters(now limiter.Time, domain, text string, d descriptors.Descriptor) (*CounterReport, error) {
	rules, err := a.service.Active()
	if err != nil {
		return nil, err
	}
	report := NewCounterReport(rules.Set, domain, text, d.Entries)
	lookup := rules.Lookup(domain, d)
	switch m := &lookup.Plan.Matches[0]; {
	case m.Override:
		report.Rule = ""
		report.Limits = nil
		report.Reason = "the request's own limit applies"
	case m.Rule != nil:
		if m.Rule.Divided() != nil {
			report.Divided = a.quotaBucketOf(time.Unix(0, int64(now)), domain, d.Entries)
		}
		if m.Rule.Unlimited {
			report.Reason = "an unlimited rule has no counters"
		}
		if m.IgnoredOverride {
			report.Reason = "the request's own limit cannot be used with this rule: the rule's own applies"
		}
	}
	b := &lookup.Plan.Batch
	if err := lookup.Decide(now); err != nil {
		return nil, err
	}
	for i := range b.Charges {
		report.Counters = append(report.Counters, a.counterState(now, rules, lookup, i))
	}
	if report.Divided == nil {
		if r := lookup.Plan.Matches[0].Rule; r != nil && r.FirstWithRoom() {
			for i := range b.Charges { // these limits deny together, as quotas do
				if b.Charges[i].Mode == limiter.Enforce {
					b.Charges[i].Mode = limiter.Quota
				}
			}
		}
		report.Next = &NextRequest{}
		if !report.exempt && !a.service.Settings().ShadowMode {
			report.Next = nextRequest(b, report.Counters)
		}
	}
	return report, nil
}

// nextRequest returns the effect of the charges of one hit. The limits of a quota deny if all of them
// do, and for the shortest of their times.
func nextRequest(b *limiter.Batch, counters []CounterState) *NextRequest {
	next := &NextRequest{}
	quota := &NextRequest{}
	passes := false
	for i := range counters {
		c := &counters[i]
		p := b.Charges[i].Policy
		isQuota := b.Charges[i].Mode == limiter.Quota
		switch denies := c.Remaining < max(1, c.Reserves); {
		case !b.Charges[i].Mode.Denies():
		case !denies:
			passes = passes || isQuota
		case isQuota:
			if by := newDenial(c, p); !quota.Denied || by.For < quota.For {
				quota = by
			}
		default:
			if by := newDenial(c, p); !next.Denied || by.For > next.For {
				next = by
			}
		}
	}
	if quota.Denied && !passes && quota.For >= next.For {
		return quota
	}
	return next
}

// newDenial describes the denial of one hit by a counter that has no room for it.
func newDenial(c *CounterState, p *limiter.Policy) *NextRequest {
	limit, _, _ := strings.Cut(c.Limit, ",")
	by := &NextRequest{Denied: true, By: cmp.Or(c.Name, limit), For: c.ResetsIn}
	if c.Penalty > 0 {
		if c.Used >= c.Capacity { // the limit itself may deny longer
			by.For = 0
		}
		return by
	}
	switch p.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		bucket := p.Bucket()
		step := bucket.Duration(bucket.Step).Seconds()
		switch by.AtMost = c.Reserves > 0; {
		case by.AtMost:
		case c.Over: // For is the time until the bucket is full of hits
			by.For += step
		case step > 0 && by.For > step:
			by.For = math.Mod(by.For, step)
		}
	case limiter.FixedWindow:
		by.AtMost = c.Reserves > 0
	case limiter.SlidingWindow, limiter.SlidingLog, limiter.Concurrency:
		by.AtMost = !c.Over && by.For > 0
	}
	return by
}

// counterState returns the state of the counter of charge i of a decided lookup.
func (a *API) counterState(now limiter.Time, rules *answer.Active, lookup *answer.Lookup, i int) CounterState {
	b := &lookup.Plan.Batch
	charge := &b.Charges[i]
	limit := lookup.Plan.Limits[i]
	d := &b.Decisions[i]
	c := CounterState{
		Limit: limit.String(), Name: limit.Name, Unit: live.UnitOf(limit), Key: a.service.Recorder().Hash(charge.ID), Shadow: limit.Candidate && !limit.Soft, Soft: limit.Soft,
		Denied: rules.Live[lookup.Plan.DomainIndex].HasKey(charge.ID),
		Used:   d.Before, Capacity: charge.Policy.Capacity(), Remaining: d.Remaining, Over: d.Over,
	}
	if held := lookup.Held(now, i); held != nil {
		c.Held = &HeldState{held.Requests, held.Hits, held.Oldest.Seconds(), held.Next.Seconds()}
	}
	if r := limit.Reservation; r != nil {
		c.Reserves = r.Hits(charge.Policy)
		c.Samples, c.SamplesNeeded = r.Samples()
		c.Estimated = c.SamplesNeeded > 0
	}
	if d.Penalty > 0 {
		c.Penalty = int(d.Penalty)
		c.PenaltyFor = d.RetryAfter.Seconds()
	}
	if (d.Before > 0 || d.Penalty > 0) && limit.HasWindow() {
		at := time.Unix(0, int64(now)).Add(d.Reset).UTC()
		if calendar := limit.Policy.Calendar; calendar != nil {
			at = at.In(calendar.Zone())
			c.Timezone = calendar.Zone().String()
		}
		c.ResetsIn = d.Reset.Seconds()
		c.ResetsAt = &at
	}
	return c
}
