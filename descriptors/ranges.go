package descriptors

import (
	"fmt"
	"hash/maphash"
	"net/netip"
	"strconv"

	"github.com/gaissmai/bart"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// valueSet is a compiled [rules.ValueSet].
type valueSet struct {
	text string // result of [rules.ValueSet.Text]; empty if any value matches
	id   string // result of [rules.ValueSet.ID]
	// contents is a hash of the values and ranges, whatever their order.
	contents uint64
	// addresses is true for the fields cidr and prefix: counters are those of addresses.
	addresses bool
	// file is true if the ranges are from a file. count is their number.
	file  bool
	count int
	// prefix is the field prefix, or the lengths of single addresses.
	prefix rules.PrefixLengths
	// ranges are those of all cidr nodes with the key, or nil for a node without cidr.
	ranges *rangeTable
}

var singleAddresses = rules.PrefixLengths{V4: 32, V6: 128}

func newValueSet(s *rules.ValueSet) *valueSet {
	set := &valueSet{
		text: s.Text(), id: s.ID(), addresses: s.Values == nil, file: s.File != "", count: len(s.Ranges), prefix: singleAddresses,
	}
	for i := range s.Values {
		set.contents += maphash.String(contentsSeed, s.Values[i].Text)
	}
	for i := range s.Ranges {
		set.contents += maphash.Comparable(contentsSeed, s.Ranges[i].Prefix)
	}
	if s.Prefix != nil {
		set.prefix = *s.Prefix
	}
	return set
}

var contentsSeed = maphash.MakeSeed()

// distinguish gives s another ID if an earlier descriptor with the key names a file in the same way:
// relative paths in different directories.
func (s *valueSet) distinguish(key string, earlier []node) {
	if !s.file { // there may be many of these
		return
	}
	same := 1
	for i := range earlier {
		if n := &earlier[i]; n.key == key && n.set != nil && n.set.file && n.set.text == s.text {
			same++
		}
	}
	if same > 1 {
		s.id += " " + strconv.Itoa(same)
	}
}

// setID is the ID of the set of values of n, or empty if n has none.
func (n *node) setID() string {
	if n.set == nil || n.set.text == "" {
		return ""
	}
	return n.set.id
}

// maxCounted is the length of the longest result of [valueSet.counted].
const maxCounted = len(sharedMark + "0000:0000:0000:0000:0000:0000:255.255.255.255/128")

// sharedMark precedes the ID of a set, and a network, in the identity of the counter that its values
// share. It is not valid UTF-8, so no value of a client or a rule is equal.
const sharedMark = "\xff"

// rangeTable has the cidr nodes of one key by their ranges.
type rangeTable struct{ table bart.Table[*node] }

// lookup returns the node with the longest range that contains all addresses of a value, or nil.
func (t *rangeTable) lookup(value []byte, r *addressReader) *node {
	p, ok := r.read(value)
	if !ok {
		return nil
	}
	var n *node
	if p.IsSingleIP() {
		n, _ = t.table.Lookup(p.Addr()) // faster than LookupPrefix
	} else {
		n, _ = t.table.LookupPrefix(p)
	}
	return n
}

// explain is lookup, and returns the range that matches.
func (t *rangeTable) explain(e *Entry) (text string, n *node) {
	p, ok := parseAddress(e.Value)
	if !ok {
		return fmt.Sprintf("%s is not an address", rules.Level{Key: string(e.Key), Value: string(e.Value)}), nil
	}
	within, n, ok := t.table.LookupPrefixLPM(p)
	if !ok {
		return fmt.Sprintf("%s in %s", rules.RangeText(p), rules.Count(t.table.Size(), "range")), nil
	}
	return fmt.Sprintf("%s in %s of %s", rules.RangeText(p), rules.RangeText(within), n.text()), n
}

// counted returns the part of a value that its counter depends on. An address is cut to the field
// prefix, but not to fewer bits than the range that matches it; if that is a network, mark precedes
// it. Other values are unchanged. The result may be in buf.
func (s *valueSet) counted(buf, value []byte, mark string) []byte {
	p, ok := parseAddress(value)
	if !ok {
		return value
	}
	bits := s.prefix.V6
	if p.Addr().Is4() {
		bits = s.prefix.V4
	}
	if bits = min(bits, p.Bits()); s.ranges != nil && bits < p.Bits() {
		if within, _, ok := s.ranges.table.LookupPrefixLPM(p); ok {
			bits = max(bits, within.Bits())
		}
	}
	if p = netip.PrefixFrom(p.Addr(), bits).Masked(); p.IsSingleIP() {
		return p.Addr().AppendTo(buf[:0])
	}
	return p.AppendTo(append(buf[:0], mark...))
}

// addSet adds the values and ranges of a node. values is the number of values in the branch. It
// calls onDuplicate for each one that another node has, or that the node has twice.
func (b *branch) addSet(n *node, set *rules.ValueSet, values int, onDuplicate duplicateFunc) {
	for _, v := range set.Values {
		if first := b.add(v.Text, n, values); first != nil {
			onDuplicate(v.Pos, n, first, "value "+strconv.Quote(rules.Shorten(v.Text)))
		}
	}
	if set.Ranges == nil {
		return
	}
	if b.ranges == nil {
		b.ranges = &rangeTable{}
	}
	n.set.ranges = b.ranges
	for _, r := range set.Ranges {
		b.ranges.table.Modify(r.Prefix, func(first *node, found bool) (*node, bool) {
			if !found {
				first = n
			} else {
				onDuplicate(r.Pos, n, first, "range "+rules.RangeText(r.Prefix))
			}
			return first, false
		})
	}
}

// matchesSeveral reports whether the node has a wildcard or a set of values, which can share a
// counter.
func (n *node) matchesSeveral() bool {
	return isWildcard(n.key) || isWildcard(n.value) || n.set != nil && n.set.text != ""
}

// warnHidden warns of cidr nodes without a descriptor that the key alone has: the first match is
// final, so addresses in the ranges do not reach it.
func (c *compiler) warnHidden(d *domain, l *level) {
	for i := range l.children {
		n := &l.children[i]
		if n.set == nil || n.set.ranges == nil || n.below == nil && n.rule != nil && n.rule.Unlimited {
			continue
		}
		keyOnly := l.find([]byte(n.key)).keyOnly
		if keyOnly == nil || keyOnly.below == nil {
			continue
		}
		for j := range keyOnly.below.children {
			if below := &keyOnly.below.children[j]; n.child(below) == nil {
				c.warn(rules.Hides, n.pos, nodePath(d, n),
					"requests of these addresses do not reach %s at %s, since the first match is final; add the same below this descriptor, or an unlimited limit there to exempt them",
					rules.Shorten(below.text()), below.pos)
				break
			}
		}
	}
}

// countedLevels returns the value sets of the levels whose values are counted as addresses, parallel
// to lineage, or nil if there are none.
func countedLevels(lineage []*node) (counted []*valueSet) {
	for i, n := range lineage {
		if n.set == nil || !n.set.addresses || n.share {
			continue
		}
		if counted == nil {
			counted = make([]*valueSet, len(lineage))
		}
		counted[i] = n.set
	}
	return counted
}

// counted returns the value of an entry of the rule as its counter and metrics have it, with mark
// before a network. The result may be in buf.
func (r *Rule) counted(buf []byte, level int, value []byte, mark string) []byte {
	if counted := r.optionalOrZero().counted; counted != nil && counted[level] != nil {
		return counted[level].counted(buf, value, mark)
	}
	return value
}
