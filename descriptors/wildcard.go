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

// maxCoverSearch is the number of wildcards with which later ones are compared. Any number of those such
// as a* are found by their prefix, if it has at most as many bytes.
const maxCoverSearch = 64

// warnUnreachable warns of descriptors that no entry reaches, because a wildcard of the same level
// matches all of their values first.
func (c *compiler) warnUnreachable(d *domain, l *level) {
	warn := func(n, first *node, why string) {
		c.warn(rules.Hides, n.pos, nodePath(d, n), "no request reaches this descriptor, since %s at %s matches all of its values first%s", rules.Shorten(first.text()), first.pos, why)
	}
	for i := range l.branches {
		b := &l.branches[i]
		prefixes := map[string]*node{}
		for j := range b.wild {
			n := b.wild[j].node
			p := &b.wild[j].value
			var first *node
			for k := 0; k <= min(len(p.prefix), maxCoverSearch) && first == nil; k++ {
				first = prefixes[p.prefix[:k]]
			}
			for k := 0; k < min(j, maxCoverSearch) && first == nil; k++ {
				// Each * of the value is within a part that the earlier pattern matches with a *.
				if earlier := &b.wild[k]; earlier.value.matches([]byte(n.value)) {
					first = earlier.node
				}
			}
			// Other keys may reach a node whose key is a wildcard. Equal values are duplicates.
			if first != nil && !isWildcard(n.key) && first.value != n.value {
				warn(n, first, ": move it up, or remove one of them")
			}
			if first == nil && !p.literal && p.suffix == "" && p.middle == nil {
				prefixes[p.prefix] = n
			}
		}
		if first := prefixes[""]; first != nil && b.keyOnly != nil {
			warn(b.keyOnly, first, ": the key alone is tried after all wildcards, so remove one of them")
		}
	}
}
