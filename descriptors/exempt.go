package descriptors

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Exemption is an item of the field exempt of a domain.
type Exemption node

// String returns the item and its place, such as `remote_address=10.0.0.0/8 at rules.yaml:3:5`.
func (e *Exemption) String() string {
	n := (*node)(e)
	return n.text() + " at " + n.pos.String()
}

// findExemption returns the item for the first entry that has one, or nil.
func (l *level) findExemption(entries []Entry, addresses *addressReader) *Exemption {
	for i := range entries {
		if n := l.next(&entries[i], addresses); n != nil {
			return (*Exemption)(n)
		}
	}
	return nil
}

// applyExemption removes the matches of an exempt request, except those of refunds. But a request
// that returns a lease is not exempt, since it ends one that was charged.
func (p *Plan) applyExemption(req *Request) {
	for i := range p.Matches {
		if hits(req, &req.Descriptors[i]) >= FirstLease && p.Matches[i].usesLeases() {
			p.Exempt = nil
			return
		}
	}
	for i := range p.Matches {
		if !req.Descriptors[i].Refund {
			p.Matches[i] = Match{}
		}
	}
}

// compileExemptions sets the domain's exempt: the items of all its files, and those of defaults.
// Files may have the same items. Domains with only the items of the defaults for every domain share
// one level, since its ranges may take much memory.
func (c *compiler) compileExemptions(d *domain, configs []*rules.Config) {
	var items []rules.Descriptor
	for _, cfg := range configs {
		items = append(items, cfg.Exempt...)
		if c.opt.clearConfigs {
			cfg.Exempt = nil
		}
	}
	shared := false
	for _, dd := range c.opt.Defaults.ForDomain(d.name) {
		shared = len(items) == 0 && dd.Domain == rules.EveryDomain
		items = append(items, dd.Exempt...)
	}
	if items == nil {
		return
	}
	if shared && c.sharesExempt != nil {
		d.exempt = c.sharesExempt.exempt
		d.exemptDigest = c.sharesExempt.exemptDigest
		return
	}
	if shared {
		c.sharesExempt = d
	}
	children := make([]node, len(items))
	var digests levelDigests
	sets := map[int]*rules.ValueSet{} // by index in children
	for i := range items {
		item := &items[i]
		n := &children[i]
		*n = node{parent: &node{}, key: item.Key, value: item.Value, pos: item.Pos}
		if item.Set != nil {
			sets[i] = item.Set
			n.set = newValueSet(item.Set)
		}
		digests.add(n, c.sha.descriptor(n, item.Set, digest{}))
	}
	d.exempt = newLevel(children, sets, func(pos rules.Pos, n, first *node, what string) {
		if n.pos.File == first.pos.File {
			c.warn(rules.Twice, pos, rules.DomainPath(d.name)+" > exempt",
				"duplicate %s; first in the item at %s; remove one of them", what, first.pos)
		}
	})
	d.exemptDigest = c.sha.level(&digests)
}

// exemptField returns the field exempt with at most maxShownItems items.
func (d *domain) exemptField() string {
	if d.exempt == nil {
		return ""
	}
	const maxShownItems = 3
	var items []string
	for i := range d.exempt.children {
		n := &d.exempt.children[i]
		if len(items) == maxShownItems {
			items = append(items, fmt.Sprintf("%d more", len(d.exempt.children)-i))
			break
		}
		items = append(items, n.text())
	}
	return ", exempt: [" + strings.Join(items, ", ") + "]"
}

// explainExemption returns why the entries exempt their request, or an empty text if they do not.
func (d *domain) explainExemption(entries []Entry) string {
	if d.exempt == nil {
		return ""
	}
	for i := range entries {
		e := &entries[i]
		if n := d.exempt.next(e, new(addressReader)); n != nil {
			sent := rules.Level{Key: string(e.Key), Value: string(e.Value)}
			if b := d.exempt.find(e.Key); n.set != nil && n.set.ranges != nil {
				within, _ := b.ranges.explain(e)
				return fmt.Sprintf("%s: %s at %s", sent.Key, within, n.pos)
			}
			return fmt.Sprintf("%s by %s at %s", sent, n.text(), n.pos)
		}
	}
	return ""
}

// MayExempt reports whether an item of the domain's field exempt has a key of the descriptor.
func (s *Set) MayExempt(domain string, forms []Form) bool {
	d := s.domains[domain]
	return d != nil && d.exempt != nil &&
		slices.ContainsFunc(forms, func(f Form) bool { return f.AnyKey || d.exempt.find([]byte(f.Key)) != nil })
}

// Exempts reports whether a descriptor of constant entries exempts its request.
func (s *Set) Exempts(domain string, forms []Form) bool {
	d := s.domains[domain]
	return d != nil && d.exempt != nil && slices.ContainsFunc(forms, func(f Form) bool {
		return d.exempt.next(&Entry{Key: []byte(f.Key), Value: []byte(f.Value)}, new(addressReader)) != nil
	})
}
