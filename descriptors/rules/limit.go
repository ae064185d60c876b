package rules

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// algorithm is the limit's algorithm, the default applied.
func (l *Limit) algorithm() limiter.Algorithm {
	if l.Algorithm == 0 {
		return limiter.FixedWindow
	}
	return l.Algorithm
}

// WindowSeconds is the limit's window in seconds. It cannot overflow.
func (l *Limit) WindowSeconds() int64 { return l.Unit.Seconds() * int64(l.UnitMultiplier) }

// WindowMistake says what is wrong with the window of a limit whose unit is known. It is
// empty if nothing is.
func (l *Limit) WindowMistake() string {
	longest := int64(limiter.MaxWindow / time.Second)
	switch w := l.WindowSeconds(); {
	case w <= 0:
		return fmt.Sprintf("a window of %d %ss is out of range; the least unit_multiplier is 1", l.UnitMultiplier, l.Unit)
	case w > longest:
		return fmt.Sprintf("a window of %d %ss is longer than 10 years; the highest unit_multiplier of unit %s is %d",
			l.UnitMultiplier, l.Unit, l.Unit, longest/l.Unit.Seconds())
	default:
		return ""
	}
}

// OddName says what is wrong with the name of a limit. It is empty if nothing is. Envoy
// writes the name into a header, between quotes and without escaping it.
func OddName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r == '"' || unicode.IsControl(r) }) {
		return fmt.Sprintf("name %q holds a quote or a control character, which breaks the x-ratelimit-limit header", Shorten(name))
	}
	return ""
}

// IsLeaseName reports whether a lease can have the name: Envoy reads it in %DYNAMIC_METADATA(namespace:name)%.
func IsLeaseName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return strings.ContainsRune(`:%()"`, r) || unicode.IsSpace(r) || unicode.IsControl(r)
	})
}

// Policy returns what the words of a limit mean. The limit must be valid and not
// unlimited. CountRefused is left out: it depends on more than the limit.
func (l *Limit) Policy() limiter.Policy {
	p := l.policy()
	if l.Reserve != nil {
		p.Reserve = new(limiter.Reserve)
		l.Reserve.Set(p.Reserve, &p)
	}
	if l.Penalty != nil {
		p.Penalty = limiter.NewPenalty(l.Penalty...)
	}
	return p
}

// policy is Policy without the words reserve and penalty.
func (l *Limit) policy() limiter.Policy {
	p := limiter.Policy{
		Algorithm: l.algorithm(), Limit: l.RequestsPerUnit, Window: time.Duration(l.WindowSeconds()) * time.Second,
	}
	if mean := rowOf(p.Algorithm).mean; mean != nil {
		mean(&p, l)
	}
	p.Calendar = l.calendar()
	return p
}

// Given returns what word points to, or otherwise if it is nil.
func Given[T any](word *T, otherwise T) T {
	if word == nil {
		return otherwise
	}
	return *word
}

// SameCounter reports whether two limits of one descriptor would have the same counters,
// that is, the same [CounterWord]. Months has them go ByCalendarMonth.
func (l *Limit) SameCounter(other *Limit, months bool) bool {
	a, b := *l, *other
	if months {
		a.ByCalendarMonth()
		b.ByCalendarMonth()
	}
	p, q := a.policy(), b.policy()
	return CounterWord(&p, a.Shadow) == CounterWord(&q, b.Shadow)
}

// InForce returns how many limits are no candidates.
func InForce(limits []Limit) (n int) {
	for i := range limits {
		if !limits[i].Shadow {
			n++
		}
	}
	return n
}

// NoneInForce is said of a list of candidates alone.
const NoneInForce = "all limits of the list are candidates (shadow: true), so that none is in force; to try a limit alone, write shadow_mode: true beside rate_limit"

// SameCounterHelp says what to do about two limits of l's algorithm with the same counter.
func (l *Limit) SameCounterHelp() string {
	if l.Shadow {
		return "they would be one counter; try one candidate after the other"
	}
	if rowOf(l.algorithm()).burst != nil {
		return "they would be one counter; give one of them another window, such as 60 a minute for 1 a second"
	}
	return "the lower alone would hold"
}

// Mistake is what is wrong with a word of a limit. Misplaced says that the word should
// not be there. Otherwise its value is wrong.
type Mistake struct {
	Word      string
	Misplaced bool
	Message   string
}

// Mistakes returns what is wrong with the words of l's algorithm, beyond the range that
// each word has by itself. The window must be valid.
func (l *Limit) Mistakes() []Mistake {
	var all []Mistake
	algorithm := l.algorithm()
	for i := range rows {
		of := &rows[i]
		for _, w := range of.words {
			if own := rowOf(algorithm); own != of && w.given(&l.Words) {
				all = append(all, Mistake{w.name, true, fmt.Sprintf(`%q has no meaning under %s; it belongs to "algorithm: %s"`,
					w.name, own.name, of.name)})
			}
		}
	}
	all = append(all, l.calendarMistakes()...)
	if l.Reserve != nil {
		all = append(all, l.reserveMistakes()...)
	}
	if l.Penalty != nil {
		all = append(all, l.penaltyMistakes()...)
	}
	if l.Quota != nil {
		all = append(all, l.quotaMistakes()...)
	}
	p := l.policy()
	r := rowOf(algorithm)
	if algorithm == limiter.Concurrency && Given(l.CountRefused, false) {
		all = append(all, Mistake{
			"count_refused", false,
			`"count_refused: true" has no meaning under concurrency: a request that is denied holds nothing; remove it`,
		})
	}
	if p.Limit > r.most {
		all = append(all, Mistake{"requests_per_unit", false, fmt.Sprintf(
			`"requests_per_unit" under %s must be at most %d, not %d, %s`, r.name, r.most, p.Limit, r.why)})
	}
	if r.burst == nil {
		return all
	}
	if hits, most := r.burst(&p), p.MaxHits(); hits > most {
		w, byDefault := r.words[0], ""
		if !w.given(&l.Words) {
			byDefault = " by default"
		}
		all = append(all, Mistake{w.name, false, fmt.Sprintf(
			`%q is %d%s, which would take more than 36 years to %s at %d in %s; it must be at most %d`,
			w.name, hits-r.more, byDefault, r.toFill, p.Limit, WindowText(l.Unit, l.UnitMultiplier), most-r.more)})
	}
	return all
}

// WindowText writes a window as `minute` or `10 minutes`.
func WindowText(u Unit, multiplier uint32) string {
	if multiplier > 1 {
		return fmt.Sprintf("%d %ss", multiplier, u)
	}
	return "1 " + u.String()
}

// CounterWord is the part of an identity that says what a counter holds. A candidate has
// counters of its own, so that it can stand beside a limit of the same window.
func CounterWord(p *limiter.Policy, candidate bool) uint64 {
	const nanosPerSecond = 1_000_000_000
	word := uint64(p.Algorithm)<<32 | uint64(p.Window/nanosPerSecond)
	word |= uint64(p.SubWindows) << 40 // a counter's cells fit one number of sub-windows
	if candidate {
		word |= 1 << 48
	}
	return word ^ calendarWord(p.Calendar)
}
