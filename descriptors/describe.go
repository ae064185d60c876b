package descriptors

import (
	"strconv"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// String returns the limit for people: `60/minute` for a fixed window. Other algorithms
// follow with their words.
func (l *Limit) String() string { return l.grants(false) }

// grants is String, with the algorithm also where it is a fixed window if named is set.
func (l *Limit) grants(named bool) string {
	if l.Rule != nil && l.Rule.Unlimited {
		return "unlimited"
	}
	text := l.numbers(named)
	if l.Table != nil {
		text += ", table " + l.Table.Name()
	}
	if l.Reservation != nil {
		text += ", " + l.Reservation.String()
	}
	if l.Policy.Penalty != nil {
		text += ", " + rules.PenaltyText(l.Policy.Penalty.Steps())
	}
	return text
}

// numbers is what of grants a row may change.
func (l *Limit) numbers(named bool) string {
	var text string
	switch {
	case l.Policy.Algorithm == limiter.FixedWindow && !named:
		text = rate(l)
	case !l.HasWindow():
		text = number(l) + " at once, each for " + rules.WindowText(l.Unit, l.UnitMultiplier) + " at most"
	default:
		text = rate(l) + ", " + rules.AlgorithmText(&l.Policy)
	}
	if l.Policy.Calendar != nil {
		text += ", " + rules.CalendarText(l.Policy.Calendar)
	}
	return text
}

// rate returns a limit as 60/minute or 60/10minute.
func rate(l *Limit) string {
	text := number(l) + "/"
	if l.UnitMultiplier > 1 {
		text += strconv.FormatUint(uint64(l.UnitMultiplier), 10)
	}
	return text + l.Unit.String()
}

func number(l *Limit) string { return strconv.FormatUint(uint64(l.RequestsPerUnit), 10) }
