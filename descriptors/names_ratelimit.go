package descriptors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// envoyproxy/ratelimit names a counter by its prefix, the domain, the key and value of each entry
// and the start of the window, joined by `_`: shop_user_alice_1795305600. These names are
// ambiguous: `a_b` looks like `a` and `b`, and windows of different lengths can start at the same
// time. So a rule's counters have such names only if each name can mean only one counter:
//
//   - envoyproxy/ratelimit supports the limit. Then the descriptor has one window.
//   - The parts that come from requests, which can only be values, contain no `_`;
//     [Namer.asRatelimit] checks this.
//   - No other such rule of any domain can produce the same name with other boundaries between
//     domain, keys and values. With the same boundaries, equal names have equal entries, which
//     match the same rule.

// asRatelimit appends envoyproxy/ratelimit's name for the charge of descriptor i, without the start
// of the window. It returns false if the charge must have an exact name.
func (n *Namer) asRatelimit(p *Plan, i int, req *Request) bool {
	m := &p.Matches[i]
	rule := m.Rule
	if m.override != nil {
		rule = m.override.rule
	}
	// Such a rule has one limit, so the descriptor has one charge.
	if rule == nil || !rule.ratelimitName {
		return false
	}
	if own, ruleLimit := p.Batch.Charges[m.First].Policy, &rule.Limits[0].Policy; own.Window != ruleLimit.Window ||
		own.Calendar != ruleLimit.Calendar {
		return false
	}
	entries := req.Descriptors[i].Entries
	shared := rule.optionalOrZero().shared
	for _, part := range rule.identity.open {
		if bytes.IndexByte(entries[part.level].Value, '_') >= 0 {
			return false
		}
	}
	from := len(p.nameBytes)
	b := p.nameBytes
	b = append(append(b, n.ratelimit...), req.Domain...)
	b = append(b, '_')
	for i := range entries {
		value := entries[i].Value
		if shared != nil && shared[i] != nil {
			// The counter of an override has the value as sent.
			if m.override != nil && !bytes.Equal(value, shared[i]) {
				return false
			}
			value = shared[i]
		}
		b = append(append(b, entries[i].Key...), '_')
		b = append(append(b, value...), '_')
	}
	p.Names = append(p.Names, b[from:len(b):len(b)])
	p.nameBytes = b
	return true
}

// StoreName describes the names of a limit's counters in a store.
type StoreName struct {
	// Text is the name. It has <key> for values that come from requests, and <start> for the start
	// of a window.
	Text string
	// Ratelimit is true for a name of envoyproxy/ratelimit.
	Ratelimit bool
	// Why says which counters do not have envoyproxy/ratelimit's names if Ratelimit is true, and
	// otherwise why none has. It is empty if all have, and for sets without [Options.RatelimitNames].
	Why string
}

// StoreName describes the names of l's counters in a store. An unlimited rule has no counters.
func (s *Set) StoreName(l *Limit) StoreName {
	r := l.Rule
	switch {
	case r.Unlimited:
		return StoreName{Why: "an unlimited rule has no counters"}
	case l.Candidate || !r.ratelimitName:
		kind, starts := rules.AppendKind(appendCandidate(nil, l), &l.Policy)
		exact := StoreName{Text: "s1{...}" + string(kind)}
		if starts {
			exact.Text += "<start>"
		}
		if other := s.ambiguous[r]; l.Candidate && s.ambiguous != nil {
			exact.Why = "envoyproxy/ratelimit has no shadow: true"
			if l.Soft {
				exact.Why = "envoyproxy/ratelimit has no soft: true"
			}
		} else if other != nil {
			exact.Why = fmt.Sprintf("%s > %s at %s could have the same name", other.Domain(), other.Path(), other.Pos())
		} else if s.ambiguous != nil {
			exact.Why = r.whyNotRatelimit()
		}
		return exact
	}
	parts := []string{r.Domain()}
	open := false
	shared := r.optionalOrZero().shared
	for i, n := range r.node.lineage() {
		value := n.value
		switch {
		case shared != nil && shared[i] != nil:
			value = string(shared[i])
		case n.hasOpenValue():
			value = "<" + n.key + ">"
			open = true
		}
		parts = append(parts, n.key, value)
	}
	name := StoreName{Text: strings.Join(parts, "_") + "_<start>", Ratelimit: true}
	if open {
		name.Why = `counters of values with "_" have exact names`
	}
	return name
}

// hasOpenValue reports whether the value at n comes from the request.
func (n *node) hasOpenValue() bool { return n.value == "" || isWildcard(n.value) }

// whyNotRatelimit returns why the counters of r cannot have envoyproxy/ratelimit's names, whatever
// the other rules, or "".
func (r *Rule) whyNotRatelimit() string {
	if len(r.Limits) != 1 {
		return "envoyproxy/ratelimit has no rate_limits lists"
	}
	l := r.Limits[0]
	switch {
	case r.Unlimited:
		return "it has no counters"
	case l.Policy.Algorithm != limiter.FixedWindow:
		return "envoyproxy/ratelimit has no " + rules.AlgorithmName(l.Policy.Algorithm)
	case l.counter != nil:
		return "envoyproxy/ratelimit has no counter"
	case l.Policy.Reserve != nil:
		return "envoyproxy/ratelimit has no reserve"
	case l.Policy.Penalty != nil:
		return "envoyproxy/ratelimit has no penalty"
	case l.Policy.Calendar != nil && !rules.IsUTCMonth(l.Policy.Calendar):
		return "envoyproxy/ratelimit has only calendar months, in UTC"
	case l.UnitMultiplier > 1:
		return "envoyproxy/ratelimit has no unit_multiplier"
	case strings.HasPrefix(r.Domain(), exactMark):
		return "its domain begins with s1{, like exact names"
	}
	shared := r.optionalOrZero().shared
	for i, n := range r.node.lineage() {
		switch {
		case n.set != nil:
			return "envoyproxy/ratelimit has no values, cidr or prefix"
		case isWildcard(n.key):
			return `a key has a "*"`
		case n.hasOpenValue() && (shared == nil || shared[i] == nil) && strings.Contains(n.value, "_"):
			return `each value that matches ` + rules.Shorten(n.text()) + ` has a "_"`
		}
	}
	return ""
}

// chooseNames determines which rules' counters have envoyproxy/ratelimit's names.
func (s *Set) chooseNames() {
	s.ambiguous = map[*Rule]*Rule{}
	var all []*nameForm
	trees := map[int]*nameTree{} // by the number of parts
	for _, l := range s.Limits {
		if r := l.Rule; !l.Candidate && r.whyNotRatelimit() == "" {
			f := r.nameForm()
			tree := trees[len(f.parts)]
			if tree == nil {
				tree = &nameTree{}
				trees[len(f.parts)] = tree
			}
			tree.add(f.parts, f)
			all = append(all, f)
		}
	}
	for _, f := range all {
		if other := trees[len(f.parts)].find(f.parts, f); other != nil {
			s.ambiguous[f.rule] = other.rule
		} else {
			f.rule.ratelimitName = true
		}
	}
}

// nameForm is the form of the names of a rule's counters.
type nameForm struct {
	rule *Rule
	// parts are the parts between two `_`. A part is nil if it is a value of the request, which can
	// be any text without `_`.
	parts []*string
	// boundaries encodes the number of parts of the domain and of each key and value.
	boundaries string
}

func (r *Rule) nameForm() *nameForm {
	f := &nameForm{rule: r}
	var boundaries []byte
	literal := func(text string) {
		n := uint64(0)
		for part := range strings.SplitSeq(text, "_") {
			f.parts = append(f.parts, &part)
			n++
		}
		boundaries = binary.AppendUvarint(boundaries, n)
	}
	literal(r.Domain())
	shared := r.optionalOrZero().shared
	for i, n := range r.node.lineage() {
		literal(n.key)
		switch {
		case shared != nil && shared[i] != nil:
			literal(string(shared[i]))
		case n.hasOpenValue():
			f.parts = append(f.parts, nil)
			boundaries = append(boundaries, 1)
		default:
			literal(n.value)
		}
	}
	f.boundaries = string(boundaries)
	return f
}

// nameTree is a prefix tree of forms with the same number of parts.
type nameTree struct {
	literal map[string]*nameTree // by the next part
	open    *nameTree            // for forms whose next part is a value of the request
	// first is the first form in this tree, and other the first one with other boundaries than
	// first, or nil. If it is nil, find need not search the tree.
	first, other *nameForm
	below        []*nameTree // literal and open, in the order of the rules
}

// add adds f. parts are its parts below t.
func (t *nameTree) add(parts []*string, f *nameForm) {
	switch {
	case t.first == nil:
		t.first = f
	case t.other == nil && f.boundaries != t.first.boundaries:
		t.other = f
	}
	if len(parts) == 0 {
		return
	}
	var next *nameTree
	if parts[0] == nil {
		next = t.open
	} else {
		next = t.literal[*parts[0]]
	}
	if next == nil {
		next = &nameTree{}
		t.below = append(t.below, next)
		if parts[0] == nil {
			t.open = next
		} else {
			if t.literal == nil {
				t.literal = map[string]*nameTree{}
			}
			t.literal[*parts[0]] = next
		}
	}
	next.add(parts[1:], f)
}

// find returns a form that has other boundaries than f and can produce the same name, or nil. parts
// are f's parts below t.
func (t *nameTree) find(parts []*string, f *nameForm) *nameForm {
	if t == nil || t.other == nil && t.first.boundaries == f.boundaries {
		return nil
	}
	if len(parts) == 0 {
		if t.first.boundaries != f.boundaries {
			return t.first
		}
		return t.other
	}
	if parts[0] == nil {
		for _, next := range t.below {
			if other := next.find(parts[1:], f); other != nil {
				return other
			}
		}
		return nil
	}
	if other := t.literal[*parts[0]].find(parts[1:], f); other != nil {
		return other
	}
	return t.open.find(parts[1:], f)
}
