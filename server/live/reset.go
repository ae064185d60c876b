package live

import (
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Selection chooses among the keys that are denied: those of a domain, and of these those of a rule, and of these the
// one with a hash. Rule and Key may be empty.
type Selection struct {
	Domain string `required:"" short:"d" help:"Domain of the keys."`
	Rule   string `type:"filled" placeholder:"PATH" help:"Reset only keys of this rule, as shown by sluice top, such as 'user > path=/api/*'."`
	Key    string `name:"hash" type:"filled" placeholder:"HASH" help:"Reset only the key with this hash."`
}

// String returns the selection for people.
func (s Selection) String() string {
	text := "all keys that are denied"
	if s.Key != "" {
		text = "the key #" + s.Key
	}
	if s.Rule != "" {
		text += " by the rule " + s.Rule
	}
	return text + " in the domain " + s.Domain
}

// Reset is what a reset does, or would do.
type Reset struct {
	// Selection says for people what is reset.
	Selection string `json:"selection"`
	// Counters is how many there are, and Used the hits that they had.
	Counters int    `json:"counters"`
	Used     uint64 `json:"used"`
	// Left is how many keys are selected but left alone, because a store has their counters under names with values,
	// as envoyproxy/ratelimit does, and no value is kept.
	Left int `json:"left,omitempty"`
	// Done says that it was done. If not, the same with Token does it, within a minute.
	Done  bool   `json:"done"`
	Token string `json:"token,omitempty"`
}

// Counter is a key that is denied.
type Counter struct {
	ID     identity.ID
	Domain string
	// Limit is that of the rule, nil for a limit that a request carried.
	Limit *descriptors.Limit
	// Policy is what the counter counts by.
	Policy *limiter.Policy
	// Name is what a store calls it. Nil without a store, and for a name with values, of which nothing is kept.
	Name []byte

	at *sketch
}

// Select returns the keys that are chosen. Those of limits that requests carry have no rule.
func (l *Live) Select(which Selection) (all []Counter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := range l.domainsLocked {
		s := d.sketch.Load()
		if s == nil {
			continue
		}
		s.read(func(d denied) {
			switch {
			case d.domain() != which.Domain:
			case which.Rule != "" && (d.limit == nil || d.limit.Rule.Path() != which.Rule):
			case which.Key != "" && l.Hash(d.id) != which.Key:
			default:
				c := Counter{ID: d.id, Domain: which.Domain, Limit: d.limit, Policy: &d.own.policy, at: s}
				if d.own.domain == "" {
					c.Policy = &d.limit.Policy
				}
				if d.name != (descriptors.NameSum{}) {
					c.Name = l.namer.Named(d.name, c.Policy)
				}
				all = append(all, c)
			}
		})
	}
	return all
}

// domain returns the name of the key's domain, empty if nothing is known of its counter.
func (d *denied) domain() string {
	if d.limit != nil {
		return d.limit.Rule.Domain()
	}
	return d.own.domain
}

// Forget forgets a key that was selected, until it is denied again.
func (l *Live) Forget(c Counter) { c.at.forget(c.ID) }

// Forget forgets the key of the counter id, if it is there, until it is denied again.
func (d *Domain) Forget(id identity.ID) {
	if s := d.sketch.Load(); s != nil {
		s.forget(id)
	}
}
