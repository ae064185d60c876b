package descriptors

import (
	"strconv"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// String returns the limit for people: `60/minute` for a fixed window. Other algorithms
// follow with their words.
func (l *Limit) String() string {
	switch {
	case l.Rule != nil && l.Rule.Unlimited:
		return "unlimited"
	case l.Policy.Algorithm == limiter.FixedWindow:
		return rate(l)
	default:
		return rate(l) + ", " + rules.AlgorithmText(&l.Policy)
	}
}

// rate returns a limit as 60/minute or 60/10minute.
func rate(l *Limit) string {
	b := strconv.AppendUint(nil, uint64(l.RequestsPerUnit), 10)
	b = append(b, '/')
	if l.UnitMultiplier > 1 {
		b = strconv.AppendUint(b, uint64(l.UnitMultiplier), 10)
	}
	return string(append(b, l.Unit.String()...))
}
