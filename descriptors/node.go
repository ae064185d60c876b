package descriptors

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// maxLinearSearch is the largest number of keys or values for which a linear search is faster than
// a hash table.
const maxLinearSearch = 8

// node is a descriptor of the tree.
type node struct {
	rule   *Rule  // nil where there is no limit
	below  *level // nil where there are no descriptors below
	parent *node  // nil at the domain's root

	key, value    string
	set           *valueSet // nil for a node with one value, a wildcard or any value
	pos           rules.Pos
	share         bool // share_threshold
	valueToMetric bool
}

// lineage returns the nodes from the first level down to n.
func (n *node) lineage() []*node {
	var all []*node
	for ; n.parent != nil; n = n.parent {
		all = append(all, n)
	}
	slices.Reverse(all)
	return all
}

// level has the descriptors below one node.
type level struct {
	branches []branch
	byKey    map[string]*branch // nil if there are few branches
	// wild are the wildcards for keys without a branch, in file order.
	wild []wildcard
	// children are all descriptors in file order. Matching does not use them.
	children []node
}

// branch has the descriptors that entries with one key can match.
type branch struct {
	key     string
	exact   []exact
	byValue map[string]*node // nil if there are few values
	// ranges are the ranges of addresses, or nil.
	ranges *rangeTable
	// wild are the wildcards that can match the key, in file order: in its values, or in keys.
	wild []wildcard
	// keyOnly is the descriptor without a value, or nil.
	keyOnly *node
}

type exact struct {
	value string
	node  *node
}

type wildcard struct {
	key   pattern
	value pattern
	node  *node
}

func newWildcard(n *node) wildcard {
	value := n.value
	if value == "" {
		value = "*"
	}
	return wildcard{key: newPattern(n.key), value: newPattern(value), node: n}
}

// duplicateFunc reports that the descriptor n has a value or range at pos that the descriptor first
// has, too. what is that value or range.
type duplicateFunc func(pos rules.Pos, n, first *node, what string)

// newLevel indexes the descriptors of one level, which are in file order. It calls onDuplicate for
// each duplicate of a key and value. sets are the sets of values of the descriptors, by index.
func newLevel(children []node, sets map[int]*rules.ValueSet, onDuplicate duplicateFunc) *level {
	l := &level{children: children}
	at := map[string]int{} // index in l.branches by key
	var withValue []int    // number of descriptors with a value, parallel to l.branches
	find := func(key string) int {
		i, ok := at[key]
		if !ok {
			i = len(l.branches)
			at[key] = i
			l.branches = append(l.branches, branch{key: key})
			withValue = append(withValue, 0)
		}
		return i
	}
	for i := range children {
		if n := &children[i]; n.value != "" {
			withValue[find(n.key)]++
		} else if set := sets[i]; set != nil {
			withValue[find(n.key)] += len(set.Values)
		}
	}
	anyOf := map[string]*node{} // by wildcard key: descriptors without a value
	for i := range children {
		n := &children[i]
		var first *node
		switch {
		case n.set != nil && n.set.text != "":
			j := find(n.key)
			l.branches[j].addSet(n, sets[i], withValue[j], onDuplicate)
		case n.value != "":
			// A pattern is also an exact value: the text of the pattern itself matches it before
			// any wildcard.
			i := find(n.key)
			first = l.branches[i].add(n.value, n, withValue[i])
		case !isWildcard(n.key):
			b := &l.branches[find(n.key)]
			first = b.keyOnly
			b.keyOnly = n
		default:
			first = anyOf[n.key]
			anyOf[n.key] = n
		}
		if first != nil {
			onDuplicate(n.pos, n, first, "key and value")
		}
		if isWildcard(n.key) {
			l.wild = append(l.wild, newWildcard(n))
		}
	}
	l.distributeWildcards()
	if len(l.branches) > maxLinearSearch {
		l.byKey = make(map[string]*branch, len(l.branches))
		for i := range l.branches {
			l.byKey[l.branches[i].key] = &l.branches[i]
		}
	}
	return l
}

// distributeWildcards adds to each branch the wildcards that can match its key, in file order.
func (l *level) distributeWildcards() {
	values := map[string][]int{}
	var keys []int // children with a wildcard key; l.wild has their wildcards in the same order
	for i := range l.children {
		switch n := &l.children[i]; {
		case isWildcard(n.key):
			keys = append(keys, i)
		case isWildcard(n.value):
			values[n.key] = append(values[n.key], i)
		}
	}
	for i := range l.branches {
		b := &l.branches[i]
		fits := slices.Clone(values[b.key])
		for j := range keys {
			if l.wild[j].key.matches([]byte(b.key)) {
				fits = append(fits, keys[j])
			}
		}
		slices.Sort(fits)
		for _, child := range fits {
			b.wild = append(b.wild, newWildcard(&l.children[child]))
		}
	}
}

// add adds a value of a node. values is the number of values in the branch. If the value has a
// node, add returns that.
func (b *branch) add(value string, n *node, values int) (first *node) {
	if values > maxLinearSearch {
		if b.byValue == nil {
			b.byValue = make(map[string]*node, values)
		}
		if first = b.byValue[value]; first == nil {
			b.byValue[value] = n
		}
		return first
	}
	if i := slices.IndexFunc(b.exact, func(e exact) bool { return e.value == value }); i >= 0 {
		return b.exact[i].node
	}
	b.exact = append(b.exact, exact{value, n})
	return nil
}

// next returns the node that an entry matches, or nil. addresses reads its value if there are ranges
// for the key.
func (l *level) next(e *Entry, addresses *addressReader) *node {
	b := l.find(e.Key)
	if b == nil {
		for i := range l.wild {
			if w := &l.wild[i]; w.key.matches(e.Key) && w.value.matches(e.Value) {
				return w.node
			}
		}
		return nil
	}
	if n := b.find(e.Value); n != nil {
		return n
	}
	if b.ranges != nil {
		if n := b.ranges.lookup(e.Value, addresses); n != nil {
			return n
		}
	}
	for i := range b.wild {
		if w := &b.wild[i]; w.value.matches(e.Value) {
			return w.node
		}
	}
	return b.keyOnly
}

// find returns the branch of a key, or nil.
func (l *level) find(key []byte) *branch {
	if l.byKey != nil {
		return l.byKey[string(key)]
	}
	for i := range l.branches {
		if b := &l.branches[i]; b.key == string(key) {
			return b
		}
	}
	return nil
}

// find returns the node with exactly that value, or nil.
func (b *branch) find(value []byte) *node {
	if b.byValue != nil {
		return b.byValue[string(value)]
	}
	for i := range b.exact {
		if e := &b.exact[i]; e.value == string(value) {
			return e.node
		}
	}
	return nil
}
