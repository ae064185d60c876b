package descriptors

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Form describes an entry of descriptors that Envoy's configuration makes.
type Form struct {
	Key, Value string
	// AnyKey and AnyValue mean that the key or the value is not known.
	AnyKey, AnyValue bool
	// Optional means that the entry may be missing.
	Optional bool
}

// Reach lists what descriptors of one form can match.
type Reach struct {
	Rules []*Rule
	// Passes is true if such a descriptor can match a node without a limit and without nodes below.
	Passes bool
	// Reason is a sentence why nothing can match, with the nearest descriptors, or empty.
	Reason string
}

// Reach returns what descriptors of the given form can match. The domain must be configured.
func (s *Set) Reach(domain string, forms []Form) Reach {
	d := s.domains[domain]
	if d == nil {
		return Reach{Reason: fmt.Sprintf("domain %q is not configured", domain)}
	}
	var r Reach
	at := []*node{&d.root}
	for i := range forms {
		next := reachable(at, &forms[i])
		if forms[i].Optional {
			for _, n := range at {
				if !slices.Contains(next, n) {
					next = append(next, n)
				}
			}
		}
		if len(next) == 0 {
			r.Reason = whyNoMatch(at, &forms[i], i)
			return r
		}
		at = next
	}
	for _, n := range at {
		switch {
		case n.rule != nil:
			r.Rules = append(r.Rules, n.rule)
		case n.parent != nil && n.below == nil:
			r.Passes = true
		}
	}
	if len(r.Rules) == 0 && !r.Passes {
		r.Reason = at[0].whyNoLimit()
	}
	return r
}

// reachable returns the nodes that an entry of the given form can match.
func reachable(at []*node, f *Form) []*node {
	var next []*node // without duplicates, since each node has one parent
	for _, n := range at {
		if n.below == nil {
			continue
		}
		if !f.AnyKey && !f.AnyValue {
			if n := n.below.next(&Entry{Key: []byte(f.Key), Value: []byte(f.Value)}, new(addressReader)); n != nil {
				next = append(next, n)
			}
			continue
		}
		for i := range n.below.children {
			child := &n.below.children[i]
			found := f.AnyKey || child.key == f.Key
			if !found && isWildcard(child.key) {
				key := newPattern(child.key)
				found = key.matches([]byte(f.Key))
			}
			if found {
				next = append(next, child)
			}
		}
	}
	return next
}

// whyNoLimit returns why a descriptor has no limit if its last entry matches n, which has no rule.
func (n *node) whyNoLimit() string {
	switch {
	case n.parent == nil:
		return "the descriptor is empty"
	case n.below == nil:
		return fmt.Sprintf("%s at %s has no limit", pathText(n.lineage()), n.pos)
	}
	return fmt.Sprintf("%s at %s has no limit; deeper ones require %s", pathText(n.lineage()), n.pos, keysText([]*node{n}))
}

// whyNoMatch returns why entry i, which has the given form, matches nothing below any of the nodes.
func whyNoMatch(at []*node, f *Form, i int) string {
	var open []*node
	for _, n := range at {
		if n.below != nil {
			open = append(open, n)
		}
	}
	n := at[0]
	switch {
	case len(open) == 0 && n.parent == nil:
		return "the domain has no descriptors"
	case len(open) == 0:
		return fmt.Sprintf("the rules end with %s at %s, so longer descriptors match nothing", pathText(n.lineage()),
			n.pos)
	}
	n = open[0]
	below := "the rules begin with "
	if n.parent != nil {
		below = fmt.Sprintf("below %s at %s the rules have ", pathText(n.lineage()), n.pos)
	}
	entry := f.Key
	if !f.AnyValue {
		entry += "=" + f.Value
	}
	return fmt.Sprintf("nothing matches entry %d, %s: %s%s%s", i+1, rules.Shorten(entry), below, keysText(open),
		rules.DidYouMean(f.Key, otherKeys(f.Key, open)))
}

// keysText lists the first few descriptors below nodes, with their places.
func keysText(at []*node) string {
	const most = 3
	var names []string
	more := 0
	for _, n := range at {
		for i := range n.below.children {
			child := &n.below.children[i]
			if len(names) == most {
				more += len(n.below.children) - i
				break
			}
			names = append(names, rules.Shorten(child.text())+" ("+child.pos.String()+")")
		}
	}
	list := strings.Join(names, ", ")
	if more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// otherKeys returns the first 1,000 keys below nodes, since a configuration may have a mistake for each of many
// rules, or nil if the given key is one.
func otherKeys(key string, at []*node) (keys []string) {
	const most = 1000
	for _, n := range at {
		for i := range n.below.children {
			switch child := n.below.children[i].key; {
			case child == key:
				return nil
			case len(keys) < most && (len(keys) == 0 || keys[len(keys)-1] != child):
				keys = append(keys, child)
			}
		}
	}
	return keys
}
