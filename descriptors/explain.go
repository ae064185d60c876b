package descriptors

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Explanation says, step by step, which rule a descriptor matches.
type Explanation struct {
	Domain string
	// KnownDomain reports whether the domain is configured; if not, Similar are
	// the names nearest to it, at most five.
	KnownDomain bool
	Similar     []string
	// Steps has one element per entry. It ends with the entry that matches nothing, or
	// before the first entry that the tree has no level for.
	Steps []Step
	// Rule is the rule that applies, or nil.
	Rule *Rule
	// Reason says in a sentence why no rule applies. It is empty if one does.
	Reason string
}

// Step is one entry with all that was tried for it, in order.
type Step struct {
	Key, Value string
	// Tries ends with the one that hit, if any did.
	Tries []Try
}

// Try is one way in which an entry can hit a descriptor.
type Try struct {
	Kind TryKind
	// Text is the descriptor, as key=value or key.
	Text string
	// Hit reports whether the entry goes this way.
	Hit bool
	// Pos is where the descriptor stands; unknown if there is none.
	Pos rules.Pos
}

// TryKind is a kind of [Try].
type TryKind string

// The kinds, in the order in which they are tried.
const (
	Exact    TryKind = "exact"
	Wildcard TryKind = "wildcard"
	KeyOnly  TryKind = "key only"
)

// Explain walks the rules as [Set.Plan] does for a descriptor without a limit of its own,
// and records what it tries.
func (s *Set) Explain(domain string, entries []Entry) Explanation {
	x := Explanation{Domain: domain}
	d := s.domains[domain]
	if d == nil {
		x.Similar = rules.Nearest(domain, s.names)
		x.Reason = fmt.Sprintf("domain %q is not configured, so nothing is limited", domain)
		return x
	}
	x.KnownDomain = true
	if len(entries) == 0 {
		x.Reason = "a descriptor without entries matches nothing"
		return x
	}
	n := &d.root
	for i := range entries {
		e := &entries[i]
		if n.below == nil {
			x.Reason = fmt.Sprintf("the request has %d entries, but the rules end with the descriptor %s at %s: one that is deeper than the rules matches nothing",
				len(entries), pathText(n.lineage()), n.pos)
			if n.parent == nil {
				x.Reason = "the domain has no descriptors"
			}
			return x
		}
		step, next := n.below.explain(e)
		x.Steps = append(x.Steps, step)
		if next == nil {
			x.Reason = fmt.Sprintf("no descriptor matches entry %d; there is no way back to another branch", i+1)
			return x
		}
		n = next
	}
	if n.rule == nil {
		x.Reason = fmt.Sprintf("the descriptor %s at %s has no limit", pathText(n.lineage()), n.pos)
		if n.below != nil {
			x.Reason += "; only those below it do"
		}
	}
	x.Rule = n.rule
	return x
}

// explain does what next does, and records it.
func (l *level) explain(e *Entry) (Step, *node) {
	step := Step{Key: string(e.Key), Value: string(e.Value)}
	try := func(kind TryKind, text string, n *node, hit bool) bool {
		t := Try{Kind: kind, Text: text, Hit: hit}
		if n != nil {
			t.Pos = n.pos
		}
		step.Tries = append(step.Tries, t)
		return hit
	}
	b := l.find(e.Key)
	var n *node
	wild := l.wild
	if b != nil {
		n, wild = b.find(e.Value), b.wild
	}
	sent := node{key: step.Key, value: step.Value}
	if try(Exact, sent.text(), n, n != nil) {
		return step, n
	}
	for i := range wild {
		w := &wild[i]
		if try(Wildcard, w.node.text(), w.node, w.key.matches(e.Key) && w.value.matches(e.Value)) {
			return step, w.node
		}
	}
	if b != nil {
		n = b.any
	}
	try(KeyOnly, step.Key, n, n != nil)
	return step, n
}

// String returns the explanation for people, in several lines.
func (x Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain %q", x.Domain)
	if !x.KnownDomain {
		b.WriteString(" is not configured")
		for i, name := range x.Similar {
			fmt.Fprintf(&b, "%s%q", [...]string{"; did you mean ", ", "}[min(i, 1)], name)
		}
	}
	b.WriteString("\n")
	for i, step := range x.Steps {
		fmt.Fprintf(&b, "entry %d: %s=%s\n", i+1, step.Key, step.Value)
		for _, t := range step.Tries {
			fmt.Fprintf(&b, "  %-8s  %s: %s\n", t.Kind, t.Text, t.outcome())
		}
	}
	if x.Rule == nil {
		fmt.Fprintf(&b, "no limit: %s\n", x.Reason)
		return b.String()
	}
	fmt.Fprintf(&b, "rule: %s at %s%s\n", x.Rule.Path(), x.Rule.Pos(), x.Rule.flags())
	for _, l := range x.Rule.Limits {
		fmt.Fprintf(&b, "limit: %s\n", l.describe())
	}
	return b.String()
}

func (t Try) outcome() string {
	switch {
	case t.Hit:
		return "hit at " + t.Pos.String()
	case t.Kind == Wildcard:
		return "does not fit, at " + t.Pos.String()
	default:
		return "none"
	}
}

func (r *Rule) flags() string {
	flags := ""
	if r.Shadow {
		flags += ", shadow mode"
	}
	if r.Quota {
		flags += ", quota mode"
	}
	if r.few().shared != nil {
		flags += ", shared threshold"
	}
	return flags
}

func (l *Limit) describe() string {
	text := "unlimited"
	if !l.Rule.Unlimited {
		text = rate(l) + ", " + algorithmText(&l.Policy)
		if l.Policy.CountRefused {
			text += ", denied hits count"
		}
	}
	if l.Name != "" {
		text += fmt.Sprintf(", name %q", l.Name)
	}
	text += ", at " + l.Pos.String()
	if l.Defaults != nil {
		text += ", words of " + l.Defaults.Pos.String()
	}
	return text
}
