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

// maxCoverSearch is the number of wildcards with which later ones are compared.
const maxCoverSearch = 64

// warnUnreachable warns of descriptors that no entry reaches, because a wildcard of the same level
// matches all of their values first.
func (c *compiler) warnUnreachable(d *domain, l *level) {
	warn := func(n, first *node, why string) {
		c.warn(rules.Hides, n.pos, nodePath(d, n), "no request reaches this descriptor, since %s at %s matches all of its values first%s", rules.Shorten(first.text()), first.pos, why)
	}
	for i := range l.branches {
		b := &l.branches[i]
		for j := range b.wild {
			n := b.wild[j].node
			if isWildcard(n.key) {
				continue // other keys may reach it
			}
			for _, earlier := range b.wild[:min(j, maxCoverSearch)] {
				// Each * of the value is within a part that the earlier pattern matches with a *. Equal
				// values are duplicates.
				if earlier.value.matches([]byte(n.value)) && earlier.node.value != n.value {
					warn(n, earlier.node, ": move it up, or remove one of them")
					break
				}
			}
		}
		for _, w := range b.wild {
			if b.keyOnly != nil && strings.Trim(w.node.value, "*") == "" { // no value, or "*"
				warn(b.keyOnly, w.node, ": the key alone is tried after all wildcards, so remove one of them")
				break
			}
		}
	}
}
