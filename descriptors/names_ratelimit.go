package descriptors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// envoyproxy/ratelimit names a counter by its prefix, the domain, each entry's key and value and the start of
// the window, joined by `_`: shop_user_alice_1795305600. It cannot tell `a_b` from `a` and `b`, nor
// windows that start together. So a rule's counters have such names only where each can mean but
// one of sluice's counters:
//
//   - The limit is one that envoyproxy/ratelimit knows. Of one descriptor there is one such window.
//   - What a request fills in, values only, has no `_`: [Namer.asRatelimit] looks.
//   - No other such rule, of any domain, could make the same name by being cut into domain, keys and
//     values elsewhere. If it is cut in the same places, equal names have equal entries, and those
//     match one rule.

// asRatelimit appends the name of the charge of descriptor i as envoyproxy/ratelimit makes it, without
// the window's start. It reports false if the charge must have an exact name.
func (n *Namer) asRatelimit(p *Plan, i int, req *Request) bool {
	m := &p.Matches[i]
	rule := m.Rule
	if m.override != nil {
		rule = m.override.rule
	}
	// A rule of one limit has one charge, unless another limit replaces it.
	if rule == nil || !rule.ratelimitName {
		return false
	}
	if own, of := p.Batch.Charges[m.First].Policy, &rule.Limits[0].Policy; own.Window != of.Window || own.Calendar != of.Calendar {
		return false
	}
	entries := req.Descriptors[i].Entries
	shared := rule.optionalOrZero().shared
	for _, part := range rule.identity.open {
		if bytes.IndexByte(entries[part.level].Value, '_') >= 0 {
			return false
		}
	}
	from, b := len(p.nameBytes), p.nameBytes
	b = append(append(b, n.ratelimit...), req.Domain...)
	b = append(b, '_')
	for i := range entries {
		value := entries[i].Value
		if shared != nil && shared[i] != nil {
			// An override counts by the value as sent, which is another counter.
			if m.override != nil && !bytes.Equal(value, shared[i]) {
				return false
			}
			value = shared[i]
		}
		b = append(append(b, entries[i].Key...), '_')
		b = append(append(b, value...), '_')
	}
	p.Names, p.nameBytes = append(p.Names, b[from:len(b):len(b)]), b
	return true
}

// A StoreName says what the counters of a rule are called in a store.
type StoreName struct {
	// Text is the name, with values that requests fill in as <key>, and with <start> for the start of
	// a window.
	Text string
	// Ratelimit says that it is envoyproxy/ratelimit's, Mistakable that it would be but for another rule.
	Ratelimit, Mistakable bool
	// Why says, of a rule whose counters have no such name, why not; else which of its counters
	// have none, if any. It is empty for rules of sets without [Options.RatelimitNames].
	Why string
}

// StoreName returns what the counters of l are called in a store. An unlimited rule has none.
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
		if other := s.mistakable[r]; l.Candidate && s.mistakable != nil {
			exact.Why = "envoyproxy/ratelimit has no shadow: true"
		} else if other != nil {
			exact.Mistakable = true
			exact.Why = fmt.Sprintf("%s > %s at %s could have the same name", other.Domain(), other.Path(), other.Pos())
		} else if s.mistakable != nil {
			exact.Why = r.notAsRatelimit()
		}
		return exact
	}
	parts, open := []string{r.Domain()}, false
	shared := r.optionalOrZero().shared
	for i, n := range r.node.lineage() {
		value := n.value
		switch {
		case shared != nil && shared[i] != nil:
			value = string(shared[i])
		case n.filledIn():
			value, open = "<"+n.key+">", true
		}
		parts = append(parts, n.key, value)
	}
	name := StoreName{Text: strings.Join(parts, "_") + "_<start>", Ratelimit: true}
	if open {
		name.Why = `counters of values with "_" have exact names`
	}
	return name
}

// filledIn reports whether the value at n is that of the request.
func (n *node) filledIn() bool { return n.value == "" || isWildcard(n.value) }

// notAsRatelimit returns why the counters of r have no name of envoyproxy/ratelimit whatever other
// rules there are, or "".
func (r *Rule) notAsRatelimit() string {
	if len(r.Limits) != 1 {
		return "envoyproxy/ratelimit has no rate_limits lists"
	}
	l := r.Limits[0]
	switch {
	case r.Unlimited:
		return "it has no counter"
	case l.Policy.Algorithm != limiter.FixedWindow:
		return "envoyproxy/ratelimit has no " + rules.AlgorithmName(l.Policy.Algorithm)
	case l.Policy.Reserve != nil:
		return "envoyproxy/ratelimit has no reserve"
	case l.Policy.Penalty != nil:
		return "envoyproxy/ratelimit has no penalty"
	case l.Policy.Calendar != nil && !rules.IsUTCMonth(l.Policy.Calendar):
		return "envoyproxy/ratelimit has only calendar months, in UTC"
	case l.UnitMultiplier > 1:
		return "envoyproxy/ratelimit has no unit_multiplier"
	case strings.HasPrefix(r.Domain(), exactBegins):
		return "its domain begins with s1{, like exact names"
	}
	shared := r.optionalOrZero().shared
	for i, n := range r.node.lineage() {
		switch {
		case isWildcard(n.key):
			return `a key has a "*"`
		case n.filledIn() && (shared == nil || shared[i] == nil) && strings.Contains(n.value, "_"):
			return `each value that matches ` + rules.Shorten(n.text()) + ` has a "_"`
		}
	}
	return ""
}

// nameAsRatelimit decides which rules' counters have names of envoyproxy/ratelimit.
func (s *Set) nameAsRatelimit() {
	s.mistakable = map[*Rule]*Rule{}
	var all []*nameForm
	trees := map[int]*nameTree{} // by the number of parts
	for _, l := range s.Limits {
		if r := l.Rule; !l.Candidate && r.notAsRatelimit() == "" {
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
			s.mistakable[f.rule] = other.rule
		} else {
			f.rule.ratelimitName = true
		}
	}
}

// A nameForm is what the names of a rule's counters look like.
type nameForm struct {
	rule *Rule
	// parts are what lies between the `_`. That of a value which a request fills in is nil: it can be
	// anything.
	parts []*string
	// cuts says how many parts the domain and each key and value have.
	cuts string
}

func (r *Rule) nameForm() *nameForm {
	f := &nameForm{rule: r}
	var cuts []byte
	literal := func(text string) {
		n := uint64(0)
		for part := range strings.SplitSeq(text, "_") {
			f.parts = append(f.parts, &part)
			n++
		}
		cuts = binary.AppendUvarint(cuts, n)
	}
	literal(r.Domain())
	shared := r.optionalOrZero().shared
	for i, n := range r.node.lineage() {
		literal(n.key)
		switch {
		case shared != nil && shared[i] != nil:
			literal(string(shared[i]))
		case n.filledIn():
			f.parts = append(f.parts, nil)
			cuts = append(cuts, 1)
		default:
			literal(n.value)
		}
	}
	f.cuts = string(cuts)
	return f
}

// A nameTree has forms with the same number of parts, by these.
type nameTree struct {
	literal map[string]*nameTree
	open    *nameTree
	// first is the first form in this tree, and other the first one that is cut elsewhere, or nil. So a tree
	// whose forms are all cut alike need not be walked.
	first, other *nameForm
	below        []*nameTree // literal and open, in the order of the rules
}

// add adds f, of which parts remain.
func (t *nameTree) add(parts []*string, f *nameForm) {
	switch {
	case t.first == nil:
		t.first = f
	case t.other == nil && f.cuts != t.first.cuts:
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

// find returns a form that is cut elsewhere than f, of which parts remain, and can make the same name;
// or nil.
func (t *nameTree) find(parts []*string, f *nameForm) *nameForm {
	if t == nil || t.other == nil && t.first.cuts == f.cuts {
		return nil
	}
	if len(parts) == 0 {
		if t.first.cuts != f.cuts {
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
