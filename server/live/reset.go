package live

import (
	"errors"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Selection selects the counters of a descriptor, or denied keys by domain and, if not empty, by rule
// and hash. Limit is the limit override of a request with the descriptor.
type Selection struct {
	Domain     string `required:"" short:"d" placeholder:"DOMAIN" help:"Domain of the keys."`
	Descriptor string `placeholder:"K=V,K2=V2" sep:"none" help:"Reset the counters of this descriptor, whether or not they deny. A backslash escapes the next character."`
	Limit      string `placeholder:"5/hour" help:"With --descriptor: limit override of the request."`
	Rule       string `type:"filled" placeholder:"PATH" help:"Reset only keys of this rule, as shown by sluice top, such as 'user > path=/api/*'."`
	Key        string `name:"hash" type:"filled" placeholder:"HASH" help:"Reset only the key with this hash."`
}

// Check returns an error if fields of the selection exclude each other.
func (s Selection) Check() error {
	switch {
	case s.Limit != "" && s.Descriptor == "":
		return errors.New("a limit requires a descriptor")
	case s.Descriptor != "" && (s.Rule != "" || s.Key != ""):
		return errors.New("a descriptor cannot be combined with a rule or a hash: these select denied keys")
	default:
		return nil
	}
}

// String describes the selection, without values of clients.
func (s Selection) String() string {
	text := "all keys that are denied"
	if s.Descriptor != "" {
		text = "one descriptor"
	}
	if s.Key != "" {
		text = "the key #" + s.Key
	}
	if s.Rule != "" {
		text += " by the rule " + s.Rule
	}
	return text + " in the domain " + s.Domain
}

// Reset is the report of a reset or of its preview.
type Reset struct {
	// Replica is the address of the replica if sluice reset has several.
	Replica string `json:"replica,omitempty"`
	// Selection describes the selected keys.
	Selection string `json:"selection"`
	// Counters is the number of counters, and Used the sum of their used hits.
	Counters int    `json:"counters"`
	Used     uint64 `json:"used"`
	// NotReset is the number of selected keys that cannot be reset: their counters' names in the
	// store contain client values, as in envoyproxy/ratelimit, and these values are not recorded.
	NotReset int `json:"not_reset,omitempty"`
	// Done is true if the counters were reset.
	Done bool `json:"done"`
}

// DeniedCounter is the counter of a denied key.
type DeniedCounter struct {
	ID     identity.ID
	Domain string
	// Limit is the limit of the rule, or nil for a limit in the request.
	Limit *descriptors.Limit
	// Policy is the policy of the counter.
	Policy *limiter.Policy
	// Name is the counter's name in a store. It is nil without a store, and for names with values,
	// which are not recorded.
	Name []byte

	sketch *sketch
}

// Select returns the counters of the selected keys. Keys of limits in requests have no rule.
func (l *Recorder) Select(which Selection) (all []DeniedCounter) {
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
				all = append(all, s.counter(&d, l))
			}
		})
	}
	return all
}

func (s *sketch) counter(d *denied, l *Recorder) DeniedCounter {
	c := DeniedCounter{ID: d.id, Domain: d.domain(), Limit: d.limit, Policy: d.policy(), sketch: s}
	if d.name != (descriptors.NameSum{}) {
		c.Name = l.namer.Named(d.name, c.Policy)
	}
	return c
}

func (d *denied) policy() *limiter.Policy {
	if d.own.domain == "" && d.limit != nil {
		return &d.limit.Policy
	}
	return &d.own.policy
}

// domain returns the key's domain, or "" if it is unknown.
func (d *denied) domain() string {
	if d.limit != nil {
		return d.limit.Rule.Domain()
	}
	return d.own.domain
}

// Forget removes a selected key, until it is denied again.
func (l *Recorder) Forget(c DeniedCounter) { c.sketch.forget(c.ID) }

// Forget removes the key of the counter id, if it is recorded, until it is denied again.
func (d *Domain) Forget(id identity.ID) {
	if s := d.sketch.Load(); s != nil {
		s.forget(id)
	}
}
