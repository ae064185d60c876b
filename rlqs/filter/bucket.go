// Package filter models the buckets of Envoy's filter rate_limit_quota as of Envoy 1.40
// (docs/rlqs.md) in simulated time. It is used by tests only; e2e/quota compares it with a real
// Envoy.
package filter

import (
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// ReportInterval is how often an Envoy reports all of its buckets.
const ReportInterval = 5 * time.Second

// Bucket is an Envoy's state of a bucket. The zero value is a bucket that has had no request or was
// abandoned.
type Bucket struct {
	// Known is true once the bucket has had a request. Assigned is true if it has an assignment,
	// which is valid until Expires.
	Known, Assigned bool
	Kind            division.Kind
	Expires         division.Time
	// Rate is the refill rate. Tokens is the number of tokens at the last request or refill,
	// MaxTokens the capacity.
	Rate              division.Rate
	Tokens, MaxTokens float64
	// Allowed and Denied count requests since Reported, the time of the last report.
	Allowed, Denied uint64
	Reported        division.Time

	refilled division.Time
}

// Active reports whether the bucket has a valid assignment. If not, requests follow the filter's
// no_assignment_behavior or expired_assignment_behavior.
func (b *Bucket) Active(now division.Time) bool { return b.Assigned && b.Expires > now }

// Start creates the bucket at its first request.
func (b *Bucket) Start(now division.Time) { *b = Bucket{Known: true, Reported: now} }

// Admit decides n requests one by one and returns how many are allowed. Without a valid assignment
// they are allowed if allowUnassigned is true.
func (b *Bucket) Admit(now division.Time, n uint64, allowUnassigned bool) (allowed uint64) {
	switch {
	case !b.Active(now):
		if allowUnassigned {
			allowed = n
		}
	case b.Kind == division.AssignAllowAll:
		allowed = n
	case b.Kind == division.Assign:
		b.Refill(now)
		allowed = min(n, uint64(b.Tokens))
		b.Tokens -= float64(allowed)
	}
	b.Allowed += allowed
	b.Denied += n - allowed
	return allowed
}

// Refill updates the tokens to the time now: Envoy refills continuously.
func (b *Bucket) Refill(now division.Time) {
	if !b.Assigned || b.Kind != division.Assign {
		return
	}
	until := max(min(now, b.Expires), b.refilled)
	b.Tokens = min(b.MaxTokens, b.Tokens+float64(b.Rate)*float64(until-b.refilled)/float64(division.Fill))
	b.refilled = until
}

// Apply applies an action. An action for an unknown bucket is ignored. A new token bucket is as
// full as the one that it replaces; without one it starts full.
func (b *Bucket) Apply(now division.Time, a *division.Action) {
	switch {
	case !b.Known:
		return
	case a.Kind == division.Abandon:
		*b = Bucket{}
		return
	}
	full := 1.0
	if b.Active(now) && b.Kind == division.Assign && b.MaxTokens > 0 {
		b.Refill(now)
		full = b.Tokens / b.MaxTokens
	}
	b.Assigned = true
	b.Kind = a.Kind
	b.Rate = a.Rate
	b.Expires = now + a.TTL
	b.MaxTokens = float64(a.MaxTokens)
	b.refilled = now
	b.Tokens = full * b.MaxTokens
}

// TakeReport returns the usage report of the bucket and resets its counts. The caller sets the key.
func (b *Bucket) TakeReport(now division.Time) division.Report {
	r := division.Report{Allowed: b.Allowed, Denied: b.Denied, Elapsed: (now - b.Reported).Truncate(time.Second)}
	b.Allowed = 0
	b.Denied = 0
	b.Reported = now
	return r
}
