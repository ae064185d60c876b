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

func (l *Limit) checkQuota(all *mistakes) {
	q := l.Quota
	if q == nil {
		return
	}
	switch algorithm := l.algorithm(); {
	case algorithm == limiter.FixedWindow && !q.Approximate:
		all.wrong("quota", `"quota" cannot divide a fixed window: add "algorithm: token_bucket", or write "quota: { approximate: true }" for a bucket that fills at the window's rate`)
	case algorithm == limiter.TokenBucket && q.Approximate:
		all.wrong("quota", `"approximate" of quota is not supported by algorithm token_bucket, which is divided without it; remove it`)
	case algorithm != limiter.FixedWindow && algorithm != limiter.TokenBucket:
		all.misplaced("quota", `"quota" is not supported by algorithm %s; it requires "algorithm: token_bucket"`,
			AlgorithmName(algorithm))
	}
	if q.Burst < 0 || q.Burst > MaxQuotaBurst {
		all.wrong("quota.burst", `"burst" of quota must be from 0s to %s, not %s`, spanText(MaxQuotaBurst), spanText(q.Burst))
	}
	if q.MinTokens == 0 {
		all.wrong("quota", `"min_tokens" of quota must be at least 1`)
	}
}
