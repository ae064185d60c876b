package descriptors

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Explanation explains step by step which rule a descriptor matches.
type Explanation struct {
	// Rule is the rule that applies, or nil.
	Rule *Rule
	// Reason is a sentence why no rule applies, or empty.
	Reason string
	// Exempt is the entry and the item that exempt the request, or empty.
	Exempt string

	entries []Entry
	// trace lists the attempts for each entry, one on each line, after the domain.
	trace string
}

// Explain matches a descriptor without a limit of its own as [Set.Plan] does, and records its
// attempts.
func (s *Set) Explain(domain string, entries []Entry) Explanation {
	var b strings.Builder
	fmt.Fprintf(&b, "domain %q", domain)
	d := s.domains[domain]
	if d == nil {
		b.WriteString(" is not configured" + rules.DidYouMean(domain, s.names) + "\n")
		return Explanation{
			trace: b.String(), Reason: fmt.Sprintf("domain %q is not configured, so nothing is limited", domain),
		}
	}
	b.WriteString("\n")
	rule, reason := d.explain(&b, entries)
	exempt := d.explainExemption(entries)
	if exempt != "" {
		fmt.Fprintf(&b, "exempt: %s; the request passes and is not charged\n", exempt)
	}
	return Explanation{rule, reason, exempt, entries, b.String()}
}

func (d *domain) explain(b *strings.Builder, entries []Entry) (rule *Rule, reason string) {
	at := []*node{&d.root}
	for i := range entries {
		e := &entries[i]
		var next *node
		if below := at[0].below; below != nil {
			fmt.Fprintf(b, "entry %d: %s=%s\n", i+1, e.Key, e.Value)
			next = below.explain(b, e)
		}
		if next == nil {
			return nil, whyNoMatch(at, &Form{Key: string(e.Key), Value: string(e.Value)}, i)
		}
		at[0] = next
	}
	if rule = at[0].rule; rule == nil {
		reason = at[0].whyNoLimit()
	}
	return rule, reason
}

// explain is next, and writes each attempt.
func (l *level) explain(b *strings.Builder, e *Entry) *node {
	try := func(kind, text string, n *node, hit bool) bool {
		outcome := "none"
		switch {
		case hit:
			outcome = "hit at " + n.pos.String()
		case n != nil:
			outcome = "does not match, at " + n.pos.String()
		}
		fmt.Fprintf(b, "  %-8s  %s: %s\n", kind, text, outcome)
		return hit
	}
	branch := l.find(e.Key)
	var n *node
	wild := l.wild
	if branch != nil {
		n = branch.find(e.Value)
		wild = branch.wild
	}
	sent := rules.Level{Key: string(e.Key), Value: string(e.Value)}
	if try("exact", sent.String(), n, n != nil) {
		return n
	}
	if branch != nil && branch.ranges != nil {
		text, hit := branch.ranges.explain(e)
		if try("range", text, hit, hit != nil) {
			return hit
		}
	}
	for i := range wild {
		w := &wild[i]
		if try("wildcard", w.node.text(), w.node, w.key.matches(e.Key) && w.value.matches(e.Value)) {
			return w.node
		}
	}
	if branch != nil {
		n = branch.keyOnly
	}
	try("key only", sent.Key, n, n != nil)
	return n
}

// String describes each step of the matching, one line each.
func (x Explanation) String() string {
	if x.Rule == nil {
		return x.trace + "no limit: " + x.Reason + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%srule: %s at %s%s%s\n", x.trace, x.Rule.Path(), x.Rule.Pos(), x.Rule.fields(),
		defaultsText(x.Rule.optionalOrZero().defaults))
	for _, l := range x.Rule.Limits {
		fmt.Fprintf(&b, "limit: %s\n", l.describe())
		b.WriteString(l.describeRow(x.entries))
	}
	for _, l := range x.Rule.Candidates() {
		kind := "candidate"
		if l.Soft {
			kind = "soft limit"
		}
		fmt.Fprintf(&b, "%s (never denies): %s\n", kind, l.describe())
		b.WriteString(l.describeRow(x.entries))
	}
	return b.String()
}

// describeRow returns a line about the row of the limit's table that applies, or "" if the limit
// has no table.
func (l *Limit) describeRow(entries []Entry) string {
	if l.Table == nil {
		return ""
	}
	rows, hit, ok := l.Table.find(nil, entries)
	columns := rows.Columns()
	if columns == nil {
		return fmt.Sprintf("  row of table %s: the table has no rows yet, so this number applies\n", l.Table.Name())
	}
	var key []string
	levels, _ := l.Table.levelsOf(*columns)
	for i, level := range levels {
		key = append(key, (*columns)[i]+"="+string(entries[level].Value))
	}
	text := "none, so this number applies"
	if ok {
		limit, unlimited := new(Plan).limitForRow(l, nil, entries)
		text = "unlimited"
		if !unlimited {
			text = limit.numbers(true)
		}
		if name := rows.NameOf(hit); name != "" {
			text += fmt.Sprintf(", name: %q", name)
		}
	}
	return fmt.Sprintf("  row of table %s for %s: %s\n", l.Table.Name(), strings.Join(key, ", "), text)
}

func (l *Limit) describe() string {
	return l.text(true) + l.nameField() + ", at " + l.Pos.String() + defaultsText(l.Defaults)
}

// defaultsText returns the place of the item of defaults, or "" without one.
func defaultsText(e *rules.DefaultItem) string {
	if e == nil {
		return ""
	}
	return ", defaults from " + e.Pos.String()
}
