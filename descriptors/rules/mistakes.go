package rules

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Mistake is an error in a field of a limit, or in a part of it, such as reserve.ttl or penalty[0].
// Misplaced means that the field must be absent, rather than that its value is wrong.
type Mistake struct {
	Field     string
	Misplaced bool
	Message   string
}

// mistakes collects the mistakes of a limit.
type mistakes []Mistake

// wrong adds a mistake in the value of a field.
func (all *mistakes) wrong(field, format string, args ...any) {
	*all = append(*all, Mistake{field, false, fmt.Sprintf(format, args...)})
}

// misplaced adds a field that must be absent.
func (all *mistakes) misplaced(field, format string, args ...any) {
	*all = append(*all, Mistake{field, true, fmt.Sprintf(format, args...)})
}

// Mistakes returns the mistakes in the fields of l, except values outside of a field's own range.
// The window must be valid.
func (l *Limit) Mistakes() []Mistake {
	var all mistakes
	own := infoOf(l.algorithm())
	for i := range algorithms {
		info := &algorithms[i]
		for _, w := range info.fields {
			if own != info && w.given(&l.DefaultFields) {
				all.misplaced(w.name, `%q is not supported by algorithm %s; it requires "algorithm: %s"`,
					w.name, own.name, info.name)
			}
		}
	}
	l.checkCalendar(&all)
	l.checkReserve(&all)
	l.checkPenalty(&all)
	l.checkQuota(&all)
	for _, e := range exclusions {
		if !l.Has(e.field) || !l.Has(e.with) {
			continue
		}
		if !strings.Contains(e.why, ";") {
			e.why += "; remove one of them"
		}
		name, _, hasValue := strings.Cut(e.field, ": ")
		message := fmt.Sprintf("%q is not supported with %q, %s", e.field, e.with, e.why)
		all = append(all, Mistake{name, !hasValue, message})
	}
	l.checkNumbers(&all, own)
	return all
}

// exclusions are pairs of fields that a limit must not have together. why is the end of a message; without a
// remedy, that is to remove one of the two.
var exclusions = []struct{ field, with, why string }{
	{"penalty", "reserve", "where a denial may be due to reservations that are released later"},
	{"table", "counter", "since all limits of a shared counter have the same number"},
	{"counter", "quota", "since Envoy has a bucket for each descriptor"},
	{"burst", "quota", `where each Envoy has its own bucket; set "quota: { burst: 0.1s }", the time to fill it`},
	{"count_refused: true", "quota", "since an Envoy's bucket has no debt"},
	{"reserve", "quota", "since an Envoy decides each request by itself"},
	{"replaces", "quota", "since Envoy requests a quota for each descriptor separately"},
	{"table", "quota", "which divides the rule's own number"},
	{"calendar: true", "quota", "since a rate has no windows"},
	{"shadow: true", "quota", `where a limit has no list; write "shadow_mode: true" next to rate_limit`},
	{"soft: true", "quota", "since Envoy decides without a reply that could name the limit"},
	{"notify_at", "quota", "since Envoy decides without a reply that could name the limit"},
	{"soft: true", "shadow: true", "which affects only metrics"},
	{"notify_at", "shadow: true", "which affects only metrics"},
	{"replaces", "shadow: true", "since such a limit replaces none"},
	{"notify_at", "soft: true", `which reports exceeded limits; lower "requests_per_unit", and remove "notify_at"`},
	{"replaces", "soft: true", "since such a limit replaces none"},
	{"penalty", "soft: true", "which denies nothing"},
	{"reserve", "soft: true", `since requests pass whatever remains; remove "reserve", and charge the cost at the end`},
	{"max_wait", "soft: true", `which delays nothing; remove it, and set "slack" for late requests`},
}

// Has reports whether a limit has a field with an effect, or with the value that follows its name.
func (l *Limit) Has(field string) bool {
	switch field {
	case "burst":
		return l.Burst != nil && l.algorithm() == limiter.TokenBucket
	case "max_wait":
		return ValueOr(l.MaxWait, 0) > 0 && l.algorithm() == limiter.LeakyBucket
	case "algorithm: concurrency":
		return l.algorithm() == limiter.Concurrency
	case "calendar: true":
		return ValueOr(l.Calendar, false)
	case "count_refused: true":
		return ValueOr(l.CountRefused, false)
	case "counter":
		return l.Counter != ""
	case "notify_at":
		return l.NotifyAt.Exist()
	case "penalty":
		return l.Penalty != nil
	case "quota":
		return l.Quota != nil
	case "replaces":
		return len(l.Replaces) > 0
	case "reserve":
		return l.Reserve != nil
	case "shadow: true":
		return l.Shadow
	case "soft: true":
		return l.IsSoft()
	case "table":
		return l.Table != ""
	default:
		return false
	}
}

// checkNumbers checks the numbers of a limit with the algorithm own.
func (l *Limit) checkNumbers(all *mistakes, own *algorithmInfo) {
	p := l.policy()
	if p.Algorithm == limiter.Concurrency && l.Has("count_refused: true") {
		all.wrong("count_refused",
			`"count_refused: true" is not supported by algorithm concurrency, where a denied request holds no permit; remove it`)
	}
	if p.MaxWait < 0 || p.MaxWait > MaxMaxWait {
		all.wrong("max_wait", `"max_wait" must be from 0s to %s, not %s`, spanText(MaxMaxWait), spanText(p.MaxWait))
	}
	if p.Limit > own.maxRequests {
		all.wrong("requests_per_unit", `"requests_per_unit" under %s must be at most %d, not %d, %s`,
			own.name, own.maxRequests, p.Limit, own.maxReason)
	}
	if own.burst == nil {
		return
	}
	if hits, maxHits := own.burst(&p), p.MaxHits(); hits > maxHits {
		w := own.fields[0]
		byDefault := ""
		if !w.given(&l.DefaultFields) {
			byDefault = " by default"
		}
		all.wrong(w.name,
			`%q is %d%s, which would take more than 36 years to %s at %d in %s; it must be at most %d`,
			w.name, hits-own.burstOffset, byDefault, own.recovers, p.Limit, WindowText(l.Unit, l.UnitMultiplier),
			maxHits-own.burstOffset)
	}
}
