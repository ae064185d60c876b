package rules

import (
	"bytes"
	"fmt"
	"strings"
)

// A soft limit counts and never denies. Envoy learns its name while it is exceeded. A limit with
// notify_at denies as usual, and Envoy learns its name from the lowest of these shares of the limit
// on. A line of the log reports each share that is reached.

// MaxShares is the maximum number of [Shares].
const MaxShares = 8

// Shares are the shares of the field notify_at, above 0 and at most 1, in ascending order. Zeros
// follow them.
type Shares [MaxShares]float64

// Exist reports whether there are any shares.
func (s *Shares) Exist() bool { return s[0] > 0 }

// All returns the shares.
func (s *Shares) All() []float64 {
	n := 0
	for n < len(s) && s[n] > 0 {
		n++
	}
	return s[:n]
}

// String returns the shares as in a rule file.
func (s *Shares) String() string {
	if s[1] == 0 {
		return fmt.Sprint(s[0])
	}
	return strings.ReplaceAll(fmt.Sprint(s.All()), " ", ", ")
}

// IsSoft returns the field soft.
func (l *Limit) IsSoft() bool { return ValueOr(l.Soft, false) }

// NeverDenies reports whether the limit only counts: it has soft or shadow.
func (l *Limit) NeverDenies() bool { return l.Shadow || l.IsSoft() }

// AreCandidates reports whether all limits of the list are candidates: they have shadow.
func AreCandidates(limits []Limit) bool {
	for i := range limits {
		if !limits[i].Shadow {
			return false
		}
	}
	return true
}

// SoftFields returns the fields soft and notify_at with a comma before each, without absent ones.
func SoftFields(soft bool, notifyAt *Shares) (text string) {
	if soft {
		text = ", soft: true"
	}
	if notifyAt.Exist() {
		text += fmt.Sprintf(", notify_at: %v", notifyAt)
	}
	return text
}

// AppendSoftName appends a name to the empty dst as Envoy receives it for soft and notify_at: as
// [AppendSentName] does, without spaces around it.
func AppendSoftName(dst []byte, name string) []byte {
	return bytes.TrimRight(AppendSentName(dst, strings.TrimSpace(name)), " ")
}

// MissingNameMistake returns an error if the limit lacks the name that soft or notify_at require, or
// "". It is not one of the Mistakes, because the name may be that of a rule, and the field of a
// [DefaultItem].
func (l *Limit) MissingNameMistake() string {
	field := "soft"
	if !l.IsSoft() {
		field = "notify_at"
	}
	if !l.IsSoft() && !l.NotifyAt.Exist() || strings.TrimSpace(l.Name) != "" {
		return ""
	}
	return fmt.Sprintf(`%q requires a "name", which Envoy receives; add one, such as "name: monthly-budget"`, field)
}
