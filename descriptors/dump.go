package descriptors

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Dump writes every limit, a line each, as envoyproxy/ratelimit's /rlconfig does:
//
//	domain.key_value.key2: unit=HOUR requests_per_unit=5, shadow_mode: false, quota_mode: false
//
// Words that the reference lacks follow where they matter. Domains are sorted;
// within one, limits stand in file order.
func (s *Set) Dump(w io.Writer) error {
	for _, l := range s.Limits {
		if _, err := io.WriteString(w, dump(l)); err != nil {
			return err
		}
	}
	return nil
}

func dump(l *Limit) string {
	var b strings.Builder
	r, d := l.Rule, l.Rule.domain
	b.WriteString(d.name)
	for _, n := range r.node.lineage() {
		b.WriteString("." + n.key)
		if n.value != "" {
			b.WriteString("_" + n.value)
		}
	}
	fmt.Fprintf(&b, ": unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t",
		strings.ToUpper(l.Unit.String()), l.RequestsPerUnit, r.Shadow, r.Quota)
	switch {
	case r.Unlimited:
		b.WriteString(", unlimited: true")
	case l.Policy.CountRefused != d.countsRefused(l.Policy.Algorithm, len(r.Limits)):
		fmt.Fprintf(&b, ", count_refused: %t", l.Policy.CountRefused)
	}
	if l.Candidate {
		b.WriteString(", shadow: true")
	}
	if l.UnitMultiplier > 1 {
		fmt.Fprintf(&b, ", unit_multiplier: %d", l.UnitMultiplier)
	}
	b.WriteString(rules.AlgorithmWords(&l.Policy))
	b.WriteString(rules.CalendarWords(l.Policy.Calendar))
	if l.Reservation != nil {
		b.WriteString(", " + l.Reservation.words.String())
	}
	if l.Policy.Penalty != nil {
		b.WriteString(", " + rules.PenaltyText(l.Policy.Penalty.Steps()))
	}
	if l.Table != nil {
		b.WriteString(", table: " + l.Table.Name())
	}
	if d.allOrNothing {
		b.WriteString(", all_or_nothing: true")
	}
	if d.maxCounters > 0 {
		fmt.Fprintf(&b, ", max_counters: %d", d.maxCounters)
	}
	b.WriteString("\n")
	return b.String()
}
