package descriptors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Changes describes how one set differs from another.
type Changes struct {
	// Added, Removed and Changed count rules and domains.
	Added, Removed, Changed int
	// First describes the first [MaxChanges] changes, such as `shop: user 5/hour -> 0/hour`.
	First []string
}

// MaxChanges is the longest [Changes].First.
const MaxChanges = 20

// Total returns the number of changed limits.
func (c *Changes) Total() int { return c.Added + c.Removed + c.Changed }

// Changes returns how s differs from before, ordered by domain and rule. Moving a rule is not a
// change.
func (s *Set) Changes(before *Set) Changes {
	var c Changes
	names := slices.Concat(before.names, s.names)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		old := before.domains[name]
		now := s.domains[name]
		switch {
		case old == nil:
			c.add(&c.Added, "%s: new domain, %s", name, rules.Count(now.root.limitCount(), "limit"))
		case now == nil:
			c.add(&c.Removed, "%s: domain removed, %s", name, rules.Count(old.root.limitCount(), "limit"))
		default:
			if a, b := old.fields(), now.fields(); a != b {
				effect := ""
				if (old.maxCounters > 0) != (now.maxCounters > 0) {
					effect = "; its counters in memory start again"
				}
				a = cmp.Or(strings.TrimPrefix(a, ", "), "defaults")
				b = cmp.Or(strings.TrimPrefix(b, ", "), "defaults")
				c.add(&c.Changed, "%s: %s -> %s%s", name, a, b, effect)
			} else if old.exemptDigest != now.exemptDigest {
				c.add(&c.Changed, "%s: exempt has other values or ranges", name)
			}
			c.compare(name, &old.root, &now.root)
		}
	}
	return c
}

func (c *Changes) add(count *int, format string, args ...any) {
	*count++
	if len(c.First) < MaxChanges {
		c.First = append(c.First, fmt.Sprintf(format, args...))
	}
}

// compare compares the descriptors below two nodes with the same path.
func (c *Changes) compare(domain string, old, now *node) {
	type key struct{ key, value, set string }
	byKey := map[key]*node{}
	if old.below != nil {
		for i := range old.below.children {
			n := &old.below.children[i]
			byKey[key{n.key, n.value, n.setID()}] = n
		}
	}
	if now.below != nil {
		for i := range now.below.children {
			n := &now.below.children[i]
			before := byKey[key{n.key, n.value, n.setID()}]
			delete(byKey, key{n.key, n.value, n.setID()})
			if before == nil {
				before = &node{}
			}
			total := c.Total()
			c.rule(domain, n, before.rule.text(), n.rule.text())
			if c.Total() == total && before.set != nil && n.setID() != "" && n.set.contents != before.set.contents {
				c.add(&c.Changed, "%s: %s has other values or ranges", domain, pathText(n.lineage()))
			}
			c.compare(domain, before, n)
		}
	}
	if len(byKey) == 0 {
		return
	}
	for i := range old.below.children { // not byKey, to keep their order
		if n := &old.below.children[i]; byKey[key{n.key, n.value, n.setID()}] == n {
			c.rule(domain, n, n.rule.text(), "")
			c.compare(domain, n, &node{})
		}
	}
}

// rule compares the old text of a rule with the new one. A text is empty if there is no rule.
func (c *Changes) rule(domain string, n *node, old, now string) {
	switch {
	case old == now:
	case old == "":
		c.add(&c.Added, "%s: %s added, %s", domain, pathText(n.lineage()), now)
	case now == "":
		c.add(&c.Removed, "%s: %s removed, was %s", domain, pathText(n.lineage()), old)
	default:
		same := commonFields(old, now)
		c.add(&c.Changed, "%s: %s %s -> %s", domain, pathText(n.lineage()), old[:len(old)-same], now[:len(now)-same])
	}
}

// commonFields returns the length of the fields at the end that two texts have in common.
func commonFields(a, b string) (same int) {
	for i := 1; i < min(len(a), len(b)) && a[len(a)-i] == b[len(b)-i]; i++ {
		if strings.HasPrefix(a[len(a)-i:], ", ") {
			same = i
		}
	}
	return same
}

// text returns the limits and fields of a rule, or nothing if r is nil.
func (r *Rule) text() string {
	if r == nil {
		return ""
	}
	var all []string
	for _, l := range slices.Concat(r.Limits, r.Candidates()) {
		all = append(all, l.text(false)+l.shadowField()+l.nameField())
	}
	return strings.Join(all, " and ") + r.fields()
}

// limitCount returns the number of limits of n and below.
func (n *node) limitCount() (sum int) {
	if n.rule != nil {
		sum = len(n.rule.Limits) + len(n.rule.Candidates())
	}
	if n.below != nil {
		for i := range n.below.children {
			sum += n.below.children[i].limitCount()
		}
	}
	return sum
}

// Counterpart returns the limit of s that has the same counters as l, a limit of another set, or
// nil.
func (s *Set) Counterpart(l *Limit) *Limit {
	d := s.domains[l.Rule.domain.name]
	if d == nil {
		return nil
	}
	n := &d.root
	for _, step := range l.Rule.node.lineage() {
		if n = n.child(step); n == nil {
			return nil
		}
	}
	if n.rule == nil {
		return nil
	}
	for _, other := range n.rule.Limits {
		if other.kind == l.kind && other.SharedCounter() == l.SharedCounter() {
			return other
		}
	}
	return nil
}

// child returns the descriptor below n with the key and values of other, or nil.
func (n *node) child(other *node) *node {
	if n.below == nil {
		return nil
	}
	key := other.key
	value := other.value
	if id := other.setID(); id != "" {
		for i := range n.below.children {
			if child := &n.below.children[i]; child.key == key && child.setID() == id {
				return child
			}
		}
		return nil
	}
	if b := n.below.find([]byte(key)); b != nil && value == "" && !isWildcard(key) {
		return b.keyOnly
	} else if b != nil && value != "" {
		return b.find([]byte(value))
	}
	for i := range n.below.wild { // a wildcard without a value has no branch
		if child := n.below.wild[i].node; child.key == key && child.value == value {
			return child
		}
	}
	return nil
}
