package envoyconfig

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// checker compares a configuration with rules.
type checker struct {
	config *Config
	set    *descriptors.Set
	found  []Finding
	// once are findings that come once for a file, by their kind and file, in the order of coming.
	once   []*repeated
	onceAt map[repeatedKey]*repeated
	// reported are findings that are there already: many routes lead to the same one.
	reported map[place]bool
	// seen are the descriptors that have been looked at: a virtual host's are sent by many
	// routes.
	seen map[sent]*descriptors.Reach
	// domains are those of filters, with the place of the first. For those in dark it is
	// not known what is sent, and for those in lit something is.
	domains   map[string]rules.Pos
	dark, lit map[string]bool
	// partial are the domains of filters that are parts, whose routes may be elsewhere.
	partial map[string]bool
	// lost are descriptors that no rule of a domain can match, and matched elements of rate_limits that one of some domain can.
	lost    []lost
	matched map[*tree.Node]bool
	// reached are the rules that something sent can match.
	reached map[*descriptors.Rule]bool
	tallies map[*tree.Node]*tally
	// routeDomains are the domains that a RateLimitPerRoute sets, with the routes for which the filter asks.
	routeDomains map[*tree.Node]*tally
	// buckets has the id of a bucket of a quota filter for each rule that one can match, and asked what calls for it.
	buckets map[*descriptors.Rule]*tree.Node
	// connected are the domains about which only network filters ask.
	connected map[string]bool
	// bucketed are the domains of quota filters.
	bucketed map[string]bool
	asked    map[*descriptors.Rule]asking
	// leasing says that some limit gives leases.
	leasing bool
}

// sent is an element of rate_limits, sent to a domain.
type sent struct {
	domain string
	at     *tree.Node
}

// place is of a finding.
type place struct {
	code Code
	pos  rules.Pos
}

func (k *checker) report(code Code, severity rules.Severity, pos rules.Pos, format string, args ...any) {
	if p := (place{code, pos}); !k.reported[p] {
		k.reported[p] = pos != rules.Pos{}
		if severity == rules.Warning && (k.config.allowances.Allow(rules.Code(code), pos) || k.set.Allows(rules.Code(code), pos)) {
			return
		}
		k.found = append(k.found, Finding{code, severity, pos, fmt.Sprintf(format, args...)})
	}
}

// tally counts the routes that send an element of rate_limits, and those that do not.
type tally struct {
	sent, not int
	// hidden are the rate_limits of those that do not since they have their own.
	hidden []*tree.Node
	// staged says that a filter that sends it may be in another part.
	staged bool
	// why is the reason of the first that does not, and at its place.
	why string
	at  rules.Pos
}

// repeatedKey is a kind of findings in a file.
type repeatedKey struct{ kind, file string }

// repeated is a finding that much of a file earns.
type repeated struct {
	code    Code
	pos     rules.Pos
	message string
	// what the others are, and the places of those that nothing acknowledges.
	what string
	more []rules.Pos
}

// reportOnce is report for a warning that comes once for a file: the places of others, which are called what, follow
// the first one's message.
func (k *checker) reportOnce(code Code, kind, what string, pos rules.Pos, format string, args ...any) {
	if p := (place{code, pos}); k.reported[p] || k.config.allowances.Allow(rules.Code(code), pos) {
		k.reported[p] = true
		return
	}
	k.reported[place{code, pos}] = true
	key := repeatedKey{kind, pos.File}
	if r := k.onceAt[key]; r != nil {
		r.more = append(r.more, pos)
		return
	}
	r := &repeated{code: code, pos: pos, message: fmt.Sprintf(format, args...), what: what}
	k.once, k.onceAt[key] = append(k.once, r), r
}

// flush reports what comes once for a file.
func (k *checker) flush() {
	for _, r := range k.once {
		switch n := len(r.more); n {
		case 0:
		case 1:
			r.message += fmt.Sprintf("; so it is with another %s of this file, at line %d", r.what, r.more[0].Line)
		default:
			r.message += fmt.Sprintf("; so it is with %d other %ss of this file, the next at line %d", n, r.what, r.more[0].Line)
		}
		k.found = append(k.found, Finding{r.code, rules.Warning, r.pos, r.message})
	}
}
