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
	// reported are findings that are there already: many routes lead to the same one.
	reported map[place]bool
	// seen are the descriptors that have been looked at: a virtual host's are sent by many
	// routes.
	seen map[sent]*descriptors.Reach
	// domains are those of filters, with the place of the first. For those in dark it is
	// not known what is sent, and for those in lit something is.
	domains   map[string]rules.Pos
	dark, lit map[string]bool
	// reached are the rules that something sent can match.
	reached map[*descriptors.Rule]bool
	tallies map[*tree.Node]*tally
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
	// why is the reason of the first that does not, and at its place.
	why string
	at  rules.Pos
}
