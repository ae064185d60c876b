package descriptors

import (
	"bytes"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// pattern is text in which each `*` matches any number of bytes. It is split at the stars, so that
// matching allocates nothing.
type pattern struct {
	// literal is true if the text has no `*`. prefix is then the whole text.
	literal        bool
	prefix, suffix string
	// middle are the parts between two `*`, in order.
	middle [][]byte
	// minLen is the total length of the parts. It keeps prefix and suffix from overlapping: `aa*aa`
	// does not match aaa.
	minLen int
}

func isWildcard(text string) bool { return strings.Contains(text, "*") }

func newPattern(text string) pattern {
	parts := strings.Split(text, "*")
	last := len(parts) - 1
	p := pattern{literal: last == 0, prefix: parts[0], minLen: len(parts[0])}
	if p.literal {
		return p
	}
	p.suffix = parts[last]
	p.minLen += len(p.suffix)
	for _, part := range parts[1:last] {
		if part != "" {
			p.middle = append(p.middle, []byte(part))
			p.minLen += len(part)
		}
	}
	return p
}

func (p *pattern) matches(b []byte) bool {
	if p.literal {
		return string(b) == p.prefix
	}
	if len(b) < p.minLen ||
		string(b[:len(p.prefix)]) != p.prefix || string(b[len(b)-len(p.suffix):]) != p.suffix {
		return false
	}
	// The first occurrence of each part leaves the most text for the next parts.
	rest := b[len(p.prefix) : len(b)-len(p.suffix)]
	for _, part := range p.middle {
		i := bytes.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return true
}

// covers finds, for each wildcard, an earlier one that matches all of its values.
type covers struct {
	// prefixes maps the prefixes of patterns such as a* to the first node. others are other patterns, at most
	// maxCoverSearch.
	prefixes map[string]*node
	others   []*wildcard
}

const maxCoverSearch = 64

// covering returns a node whose wildcard matches all values of w, or nil.
func (c *covers) covering(w *wildcard) *node {
	for i := range len(w.value.prefix) + 1 {
		if n := c.prefixes[w.value.prefix[:i]]; n != nil {
			return n
		}
	}
	value := []byte(w.node.value)
	for _, other := range c.others {
		if other.value.matches(value) { // each * of value is within a part that other matches with a *
			return other.node
		}
	}
	return nil
}

func (c *covers) add(w *wildcard) {
	switch p := &w.value; {
	case !p.literal && p.suffix == "" && p.middle == nil:
		if c.prefixes == nil {
			c.prefixes = map[string]*node{}
		}
		c.prefixes[p.prefix] = w.node
	case len(c.others) < maxCoverSearch:
		c.others = append(c.others, w)
	}
}

// warnUnreachable warns of descriptors that no entry reaches, because a wildcard of the same level matches all of their
// values first.
func (c *compiler) warnUnreachable(d *domain, l *level) {
	warn := func(n, first *node, why string) {
		c.warn(rules.Hides, n.pos, nodePath(d, n), "no request reaches this descriptor, since %s at %s matches all of its values first%s", rules.Shorten(first.text()), first.pos, why)
	}
	for i := range l.branches {
		b := &l.branches[i]
		var earlier covers
		for j := range b.wild {
			w := &b.wild[j]
			if isWildcard(w.node.key) {
				earlier.add(w)
				continue // other keys may reach it
			}
			if first := earlier.covering(w); first != nil && first.value != w.node.value { // otherwise they are duplicates
				warn(w.node, first, ": move it up, or remove one of them")
				continue
			}
			earlier.add(w)
		}
		if n := b.keyOnly; n != nil {
			if first := earlier.prefixes[""]; first != nil {
				warn(n, first, ": the key alone is tried after all wildcards, so remove one of them")
			}
		}
	}
}
