package rules

import (
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Quota is the field quota of a limit: the rate limit quota service divides the limit among Envoys.
type Quota struct {
	// Burst bounds the tokens that an Envoy may save, as the time in which its share yields them: 0
	// to [MaxQuotaBurst].
	Burst time.Duration
	// MinTokens is the number of tokens that an Envoy may save in any case, at least 1.
	MinTokens uint32
	// Approximate permits to replace a fixed window by a bucket that refills continuously.
	Approximate bool
}

// Defaults of the fields of quota.
const (
	DefaultQuotaBurst     = 100 * time.Millisecond
	DefaultQuotaMinTokens = 4
)

// MaxQuotaBurst is the greatest burst of a quota.
const MaxQuotaBurst = time.Minute

// String returns the field with all its values.
func (q *Quota) String() string {
	text := fmt.Sprintf("quota: { burst: %s, min_tokens: %d", q.Burst, q.MinTokens)
	if q.Approximate {
		text += ", approximate: true"
	}
	return text + " }"
}

func (l *Limit) quotaMistakes() (all []Mistake) {
	q := l.Quota
	algorithm := l.algorithm()
	wrong := func(word string, misplaced bool, format string, args ...any) {
		all = append(all, Mistake{word, misplaced, fmt.Sprintf(format, args...)})
	}
	switch {
	case algorithm == limiter.FixedWindow && !q.Approximate:
		wrong("quota", false, `"quota" cannot divide a fixed window: add "algorithm: token_bucket", or write "quota: { approximate: true }" for a bucket that fills at the window's rate`)
	case algorithm == limiter.TokenBucket && q.Approximate:
		wrong("quota", false, `"approximate" of quota is not supported by algorithm token_bucket, which is divided without it; remove it`)
	case algorithm != limiter.FixedWindow && algorithm != limiter.TokenBucket:
		wrong("quota", true, `"quota" is not supported by algorithm %s; it requires "algorithm: token_bucket"`,
			AlgorithmName(algorithm))
	}
	if l.Burst != nil && algorithm == limiter.TokenBucket {
		wrong("burst", true, `"burst" is not supported with "quota", where each Envoy has its own bucket; set "quota: { burst: 0.1s }", the time in which its share fills the bucket`)
	}
	if ValueOr(l.CountRefused, false) {
		wrong("count_refused", false,
			`"count_refused: true" is not supported with "quota": an Envoy's bucket has no debt; remove it`)
	}
	if l.Reserve != nil {
		wrong("reserve", true,
			`"reserve" is not supported with "quota": an Envoy decides each request by itself; remove one of them`)
	}
	if len(l.Replaces) > 0 {
		wrong("replaces", true, `"replaces" is not supported with "quota": Envoy requests a quota for each descriptor separately, so there is no other limit to replace`)
	}
	if l.Table != "" {
		wrong("table", true,
			`"table" is not supported with "quota", which divides the rule's own number; remove one of them`)
	}
	if ValueOr(l.Calendar, false) {
		wrong("calendar", false, `"calendar: true" is not supported with "quota": a rate has no windows; remove it`)
	}
	if l.Shadow {
		wrong("shadow", false,
			`"shadow: true" is not supported with "quota"; write "shadow_mode: true" next to rate_limit`)
	}
	if q.Burst < 0 || q.Burst > MaxQuotaBurst {
		wrong("quota", false, `"burst" of quota must be from 0s to %s, not %s`, MaxQuotaBurst, q.Burst)
	}
	if q.MinTokens == 0 {
		wrong("quota", false, `"min_tokens" of quota must be at least 1`)
	}
	return all
}
