package descriptors

import (
	"fmt"
	"io"
	"strings"
)

// Dump writes a line for each limit, as envoyproxy/ratelimit's /rlconfig does:
//
//	domain.key_value.key2: unit=HOUR requests_per_unit=5, shadow_mode: false, quota_mode: false
//
// The fields that envoyproxy/ratelimit does not have follow, if they are set. Domains are sorted;
// the limits of a domain are in file order.
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
	r := l.Rule
	d := l.Rule.domain
	b.WriteString(d.name)
	for _, n := range r.node.lineage() {
		b.WriteString("." + n.key)
		if value := n.valueText(); value != "" {
			b.WriteString("_" + value)
		}
	}
	fmt.Fprintf(&b, ": unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t",
		strings.ToUpper(l.Unit.String()), l.RequestsPerUnit, r.Shadow, r.Quota)
	if r.Unlimited {
		b.WriteString(", unlimited: true")
	} else {
		if l.UnitMultiplier > 1 {
			fmt.Fprintf(&b, ", unit_multiplier: %d", l.UnitMultiplier)
		}
		b.WriteString(l.policyFields(false) + l.fields(false) + l.shadowField())
	}
	if q := r.Divided(); q != nil {
		b.WriteString(", " + q.String())
	}
	b.WriteString(r.choiceField() + r.setFields() + r.deniedField() + d.fields() + "\n")
	return b.String()
}
