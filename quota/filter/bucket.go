// Package filter is a model of Envoy's filter rate_limit_quota, as docs/rlqs.md tells of Envoy 1.40: its token
// buckets, and proxies with it that report to a [quota.Divider], in simulated time. Tests of the divider and sluice
// simulate use it, and e2e/quota holds it against a real Envoy. It knows neither rules nor logs.
package filter

import (
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
)

// Bucket is what an Envoy knows of a bucket. The zero value is one that has had no request, or was abandoned.
type Bucket struct {
	// Known says that it has had a request. Assigned says that it was told something, which acts until Expires.
	Known, Assigned bool
	Kind            quota.Kind
	Expires         quota.Time
	// Rate is what is refilled. Tokens are those at the time of the last request or refill, of Most.
	Rate         quota.Rate
	Tokens, Most float64
	// Allowed and Denied count requests since Reported, the time of the last report.
	Allowed, Denied uint64
	Reported        quota.Time

	refilled quota.Time
}

// Active reports whether what the bucket was told acts. If not, requests obey the filter's no_assignment_behavior or
// expired_assignment_behavior.
func (b *Bucket) Active(now quota.Time) bool { return b.Assigned && b.Expires > now }

// Begin makes a bucket known, at its first request.
func (b *Bucket) Begin(now quota.Time) { *b = Bucket{Known: true, Reported: now} }

// Admit decides n requests, one by one, and returns how many pass. Unassigned is what becomes of them where nothing
// acts.
func (b *Bucket) Admit(now quota.Time, n uint64, unassigned bool) (allowed uint64) {
	switch {
	case !b.Active(now):
		if unassigned {
			allowed = n
		}
	case b.Kind == quota.AssignAll:
		allowed = n
	case b.Kind == quota.Assign:
		b.Refill(now)
		allowed = min(n, uint64(b.Tokens))
		b.Tokens -= float64(allowed)
	}
	b.Allowed += allowed
	b.Denied += n - allowed
	return allowed
}

// Refill brings the tokens up to a time: Envoy refills continuously.
func (b *Bucket) Refill(now quota.Time) {
	if !b.Assigned || b.Kind != quota.Assign {
		return
	}
	until := max(min(now, b.Expires), b.refilled)
	b.Tokens = min(b.Most, b.Tokens+float64(b.Rate)*float64(until-b.refilled)/float64(quota.Fill))
	b.refilled = until
}

// Tell applies an action. One about a bucket that is not known is ignored. A token bucket that takes the place of another
// one is as full as that was; else it begins full.
func (b *Bucket) Tell(now quota.Time, a *quota.Action) {
	switch {
	case !b.Known:
		return
	case a.Kind == quota.Abandon:
		*b = Bucket{}
		return
	}
	full := 1.0
	if b.Active(now) && b.Kind == quota.Assign && b.Most > 0 {
		b.Refill(now)
		full = b.Tokens / b.Most
	}
	b.Assigned, b.Kind, b.Rate, b.Expires = true, a.Kind, a.Rate, now+a.TTL
	b.Most, b.refilled = float64(a.MaxTokens), now
	b.Tokens = full * b.Most
}

// Usage is what the Envoy reports of the bucket, whose counts begin anew. The key is the caller's to fill in.
func (b *Bucket) Usage(now quota.Time) quota.Report {
	r := quota.Report{Allowed: b.Allowed, Denied: b.Denied, Elapsed: (now - b.Reported).Truncate(time.Second)}
	b.Allowed, b.Denied, b.Reported = 0, 0, now
	return r
}
