package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// penaltyAlgorithms are the algorithms that support penalty.
var penaltyAlgorithms = []limiter.Algorithm{
	limiter.FixedWindow, limiter.SlidingWindow, limiter.SlidingLog, limiter.TokenBucket,
}

// PenaltyText returns the field penalty with its steps.
func PenaltyText(steps []time.Duration) string {
	texts := make([]string, len(steps))
	for i, step := range steps {
		texts[i] = spanText(step)
	}
	return "penalty: [" + strings.Join(texts, ", ") + "]"
}

// spanText returns a duration as rules spell it: 2m instead of 2m0s.
func spanText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = text[:len(text)-2]
	}
	if strings.HasSuffix(text, "h0m") {
		text = text[:len(text)-2]
	}
	return text
}

func (l *Limit) checkPenalty(all *mistakes) {
	algorithm := l.algorithm()
	switch {
	case l.Penalty == nil:
	case !slices.Contains(penaltyAlgorithms, algorithm):
		all.misplaced("penalty", `"penalty" is not supported by algorithm %s; it requires "algorithm: fixed_window", "sliding_window", "sliding_log" or "token_bucket"`,
			AlgorithmName(algorithm))
		return
	case len(l.Penalty) == 0:
		all.wrong("penalty", `"penalty" is empty; it must be a list of increasing durations, such as [2m, 5m, 10m]`)
	case len(l.Penalty) > limiter.MaxPenalties:
		all.wrong("penalty", `"penalty" has %d steps; it must have at most %d, the last of which repeats`,
			len(l.Penalty), limiter.MaxPenalties)
		return
	}
	for i, step := range l.Penalty {
		if step < time.Second || step > limiter.MaxPenalty || step%time.Second != 0 {
			all.wrong(fmt.Sprintf("penalty[%d]", i), `a step of "penalty" must be whole seconds from 1s to %s, not %s`,
				spanText(limiter.MaxPenalty), spanText(step))
			return
		}
		if i > 0 && step <= l.Penalty[i-1] {
			all.wrong(fmt.Sprintf("penalty[%d]", i), `"penalty" does not increase: %s comes after %s; each step must be longer than the one before, and the last repeats`,
				spanText(step), spanText(l.Penalty[i-1]))
			return
		}
	}
}
