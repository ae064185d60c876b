package rules

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// algorithm returns the limit's algorithm, by default a fixed window.
func (l *Limit) algorithm() limiter.Algorithm {
	if l.Algorithm == 0 {
		return limiter.FixedWindow
	}
	return l.Algorithm
}

// WindowSeconds returns the length of the window in seconds. It cannot overflow.
func (l *Limit) WindowSeconds() int64 { return l.Unit.Seconds() * int64(l.UnitMultiplier) }

// WindowMistake returns why the window of a limit with a known unit is invalid, or "".
func (l *Limit) WindowMistake() string {
	longest := int64(limiter.MaxWindow / time.Second)
	switch w := l.WindowSeconds(); {
	case w <= 0:
		return fmt.Sprintf("a window of %d %ss is out of range; the minimum unit_multiplier is 1", l.UnitMultiplier,
			l.Unit)
	case w > longest:
		return fmt.Sprintf("a window of %d %ss is longer than 10 years; the maximum unit_multiplier of unit %s is %d",
			l.UnitMultiplier, l.Unit, l.Unit, longest/l.Unit.Seconds())
	default:
		return ""
	}
}

// NameMistake returns why the name of a limit is unsafe, or "". Envoy writes the name into a header
// between quotes, without escaping it.
func NameMistake(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r == '"' || unicode.IsControl(r) }) {
		return fmt.Sprintf("name %q contains a quote or a control character, which breaks the x-ratelimit-limit header",
			Shorten(name))
	}
	return ""
}

// SafeName returns name with control characters replaced by question marks, since Envoy writes the
// name into a header: a line break there would add another header.
func SafeName(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, name)
}

// MaxSentName is the maximum number of bytes of a limit's name in headers, denied_by and soft.
const MaxSentName = 256

// AppendSentName appends a name as denied_by and soft have it: printable ASCII, up to MaxSentName
// bytes. Other bytes become question marks. dst may share its memory with name.
func AppendSentName[T string | []byte](dst []byte, name T) []byte {
	name = name[:min(len(name), MaxSentName)]
	for i := range len(name) {
		dst = append(dst, PrintableASCII(name[i]))
	}
	return dst
}

// PrintableASCII returns c, or a question mark if c is not printable ASCII.
func PrintableASCII(c byte) byte {
	if c < ' ' || c > '~' {
		return '?'
	}
	return c
}

// IsLeaseName reports whether a limit with this name can grant leases: Envoy reads a lease as
// %DYNAMIC_METADATA(namespace:name)%.
func IsLeaseName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return strings.ContainsRune(`:%()"`, r) || unicode.IsSpace(r) || unicode.IsControl(r)
	})
}

// Policy returns the policy of a limit, which must be valid and not unlimited. It does not set
// CountRefused, which depends on the other limits of the rule.
func (l *Limit) Policy() limiter.Policy {
	p := l.policy()
	if l.Reserve != nil {
		p.Reserve = new(limiter.Reserve)
		l.Reserve.Configure(p.Reserve, &p)
	}
	if l.Penalty != nil {
		p.Penalty = limiter.NewPenalty(l.Penalty...)
	}
	return p
}

// policy is Policy without reserve and penalty.
func (l *Limit) policy() limiter.Policy {
	p := limiter.Policy{
		Algorithm: l.algorithm(), Limit: l.RequestsPerUnit, Window: time.Duration(l.WindowSeconds()) * time.Second,
		NoBlocks: ValueOr(l.NoBlocks, false),
	}
	if set := infoOf(p.Algorithm).setPolicy; set != nil {
		set(&p, l)
	}
	p.Calendar = l.calendar()
	return p
}

// BlocksField returns the field blocks after a comma, or "" for its default.
func BlocksField(noBlocks bool) string {
	if noBlocks {
		return ", blocks: off"
	}
	return ""
}

// ValueOr returns *p, or fallback if p is nil.
func ValueOr[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

// TrueOrNil returns a pointer to true if b is true, and nil otherwise.
func TrueOrNil(b bool) *bool {
	if !b {
		return nil
	}
	return &b
}

// CounterKind returns the [CounterKind] of a valid limit. If months is set, it applies
// [Limit.UseCalendarMonth] first. Limits of one descriptor with the same kind have the same
// counters.
func (l *Limit) CounterKind(months bool) uint64 {
	a := *l
	if months {
		a.UseCalendarMonth()
	}
	p := a.policy()
	return CounterKind(&p, a.NeverDenies())
}

// CountActive returns the number of limits that can deny.
func CountActive(limits []Limit) (n int) {
	for i := range limits {
		if !limits[i].NeverDenies() {
			n++
		}
	}
	return n
}

// SameCounterHelp returns the remedy if another limit has l's counters.
func (l *Limit) SameCounterHelp() string {
	if l.IsSoft() {
		return "they would share a counter; give one of them another algorithm, or a descriptor of its own"
	}
	if l.Shadow {
		return "they would share a counter; try one after the other"
	}
	if infoOf(l.algorithm()).burst != nil {
		return "they would share a counter; give one of them another window, such as 60 a minute for 1 a second"
	}
	return "only the lower would apply"
}

// WindowText returns a window as `1 minute` or `10 minutes`.
func WindowText(u Unit, multiplier uint32) string {
	if multiplier > 1 {
		return fmt.Sprintf("%d %ss", multiplier, u)
	}
	return "1 " + u.String()
}

// RateText returns the number of p and its window in the largest unit, such as `60/minute` or
// `60/10minute`, or `3 concurrent requests`.
func RateText(p *limiter.Policy) string {
	if p.Algorithm == limiter.Concurrency {
		return Count(int(p.Limit), "concurrent request")
	}
	window := int64(p.Window / time.Second)
	unit := Second
	for _, u := range []Unit{Minute, Hour, Day, Week, Month, Year} {
		if window%u.Seconds() == 0 {
			unit = u
		}
	}
	if n := window / unit.Seconds(); n > 1 {
		return fmt.Sprintf("%d/%d%s", p.Limit, n, unit)
	}
	return fmt.Sprintf("%d/%s", p.Limit, unit)
}

// CounterKind returns the part of a counter's identity that depends on the limit. Candidates, soft
// ones included, have counters of their own, so that they can have the window of another limit.
func CounterKind(p *limiter.Policy, candidate bool) uint64 {
	const nanosPerSecond = 1_000_000_000
	word := uint64(p.Algorithm)<<32 | uint64(p.Window/nanosPerSecond)
	word |= uint64(p.SubWindows) << 40 // counters with other sub-windows have another layout
	if candidate {
		word |= 1 << 48
	}
	return word ^ calendarBits(p.Calendar)
}
