package descriptors

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A sharedCounter is a counter that limits of a domain share, whatever the keys.
type sharedCounter struct {
	name string
	// identity is the hash of domain and name. It has a key without a value, unlike those of
	// descriptors.
	identity identity.Hasher
	entries  []Entry   // counter and the name, which stand for the entries of a descriptor
	first    rules.Pos // place of the first limit
	terms    Terms     // terms of the choice
}

// shareCounter sets the shared counter of a limit with the field counter.
func (c *compiler) shareCounter(r *Rule, t *Terms, b *rules.Limit) {
	if b.Counter == "" {
		return
	}
	shared := c.counters[b.Counter]
	if shared == nil {
		shared = &sharedCounter{
			name: b.Counter, identity: r.domain.prefix, first: b.Pos, terms: *t, entries: []Entry{{[]byte("counter"), []byte(b.Counter)}},
		}
		shared.identity.AddBytesAt(keyPart(0), []byte(b.Counter))
		c.counters[b.Counter] = shared
	}
	if first := &shared.terms; first.kind != t.kind || first.Policy.Limit != t.Policy.Limit ||
		rules.AlgorithmFields(&first.Policy, true) != rules.AlgorithmFields(&t.Policy, true) {
		c.fail(b.Pos, nodePath(r.domain, r.node), "counter %q is also that of the limit at %s, which has %s; algorithm, window, number and calendar of its limits must be equal, and all or none must deny: "+
			"make them equal, or choose another name", rules.Shorten(b.Counter), shared.first,
			(&Limit{Terms: first}).String())
	}
	t.counter = shared
	t.Policy.Pin()
}

// checkChoice checks a descriptor with charge: first_with_room.
func (c *compiler) checkChoice(d *domain, n *node, cfg *rules.Descriptor) {
	const field = `"charge: first_with_room"`
	if rules.CountActive(cfg.RateLimits) < 2 {
		c.fail(cfg.Pos, nodePath(d, n),
			field+` needs at least two limits that can deny in "rate_limits"; add one, or remove "charge"`)
	}
	if cfg.QuotaMode {
		c.fail(cfg.Pos, nodePath(d, n), `"quota_mode: true" is not supported with `+field+"; remove one of them")
	}
	for i := range cfg.RateLimits {
		l := &cfg.RateLimits[i]
		if l.NeverDenies() {
			continue // it does not take part in the choice
		}
		for _, f := range [...]struct{ name, why string }{
			{"penalty", "where a limit that denies is not the end of a request"},
			{"count_refused: true", "where a limit that denies stays as it is"},
			{"max_wait", "where the next limit is tried instead of a delay"},
			{"replaces", "where a request is charged to one of several limits"},
			{"reserve", "since a lease would not show which limit it is of"},
			{"algorithm: concurrency", "since a lease would not show which limit it is of"},
		} {
			if l.Has(f.name) {
				c.fail(l.Pos, limitPath(d, n, cfg.List, i), `"%s" is not supported with %s, %s; remove it, or move the limit to a descriptor of its own`, f.name, field, f.why)
			}
		}
	}
}

// choiceField returns the field charge after a comma, or "".
func (r *Rule) choiceField() string {
	if !r.choice {
		return ""
	}
	return ", charge: first_with_room"
}

// CheckChoices returns an error if a rule has charge: first_with_room, which is not supported for the
// given reason.
func (s *Set) CheckChoices(why string) error {
	var found rules.Diagnostics
	for _, l := range s.Limits {
		if r := l.Rule; r.choice && l == r.Limits[0] {
			found = append(found, rules.Diagnostic{
				Pos: r.Pos(), Severity: rules.Error, Path: nodePath(r.domain, r.node), Message: `"charge: first_with_room" is not supported with ` + why,
			})
		}
	}
	return found.Err()
}

// FirstWithRoom reports whether a request is charged to the first of the rule's limits with room.
func (r *Rule) FirstWithRoom() bool { return r.choice }

// SharedCounter returns the name of the counter that the limit shares with others, or "".
func (l *Limit) SharedCounter() string {
	if l.counter == nil {
		return ""
	}
	return l.counter.name
}

// CounterEntries returns the entries that name the counter of a descriptor with the given entries: those,
// or for a shared counter its name.
func (l *Limit) CounterEntries(entries []Entry) []Entry {
	if l.counter == nil {
		return entries
	}
	return l.counter.entries
}

// chargeChoice charges the limits of a rule with charge: first_with_room as a choice. Refunds go to
// the first limit, and never to a shared counter. A row of 0 leaves its limit out, and an unlimited
// row lifts the choice.
func (p *Plan) chargeChoice(
	m *Match, desc *Descriptor, snapshot *Snapshot, h identity.Hasher, mode limiter.Mode, group int32, replacing bool,
) {
	var empty *Limit // a limit whose row is 0
	rows := p.rows
	for i, l := range m.Rule.Limits {
		if replacing && p.replaced(l) {
			continue
		}
		if l.Table != nil {
			limit, unlimited := p.limitForRow(l, snapshot, desc.Entries)
			if unlimited {
				p.Batch.Charges = p.Batch.Charges[:m.First]
				p.Limits = p.Limits[:m.First]
				m.Unlimited = limit
				m.Count = 0
				return
			}
			if limit != l && limit.RequestsPerUnit == 0 && !desc.Refund {
				empty = limit
				continue
			}
			l = limit
		}
		if desc.Refund && i > 0 {
			break
		}
		if p.rows > rows && p.shareCounter(m.First, l) {
			continue
		}
		p.charge(m, l, h, desc.Refund, mode, group)
		if m.Count++; desc.Refund && l.counter != nil {
			p.Batch.Charges[m.First].Hits = 0
		}
	}
	if m.Count == 0 && empty != nil {
		p.charge(m, empty, h, desc.Refund, mode, group)
		m.Count++
	}
	if m.Count == 0 || desc.Refund {
		return
	}
	p.Choices = true
	for at := m.First; at < m.First+m.Count; at++ {
		p.Batch.Charges[at].Choice = limiter.NextChoice
	}
	p.Batch.Charges[m.First].Choice = limiter.FirstChoice
}

// Choose reduces each match whose charges are a decided choice to the charge that describes it.
func (p *Plan) Choose() {
	for i := range p.Matches {
		m := &p.Matches[i]
		for m.Count > 1 && p.Batch.Decisions[m.First].Skipped {
			m.First++
			m.Count--
		}
		if m.Count > 1 && p.Batch.Charges[m.First].Choice != limiter.NoChoice {
			m.Count = 1
		}
	}
}
