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
	// perFile are findings that come once for a file, by their kind and file, in the order of coming.
	perFile      []*perFileFinding
	perFileByKey map[perFileKey]*perFileFinding
	// reported are findings that are there already: many routes lead to the same one.
	reported map[findingKey]bool
	// reachOf are the descriptors that have been looked at: a virtual host's are sent by many
	// routes.
	reachOf map[sentPolicy]*descriptors.Reach
	// domains are those of filters, with the place of the first. For those in dark it is
	// not known what is sent, and for those in lit something is.
	domains               map[string]rules.Pos
	sentUnknown, sentSome map[string]bool
	// fragmentDomains are the domains of filters that are parts, whose routes may be elsewhere.
	fragmentDomains map[string]bool
	// unmatchedPolicies are descriptors that no rule of a domain can match, and matched elements of rate_limits that one of some domain can.
	unmatchedPolicies []unmatchedPolicy
	matched           map[*tree.Node]bool
	// reachedRules are the rules that something sent can match.
	reachedRules map[*descriptors.Rule]bool
	tallies      map[*tree.Node]*tally
	// routeDomains are the domains that a RateLimitPerRoute sets, with the routes for which the filter asks.
	routeDomains map[*tree.Node]*tally
	// buckets has the id of a bucket of a quota filter for each rule that one can match, and asked what calls for it.
	buckets map[*descriptors.Rule]*tree.Node
	// networkDomains are the domains about which only network filters ask.
	networkDomains map[string]bool
	// quotaDomains are the domains of quota filters.
	quotaDomains map[string]bool
	calledFor    map[*descriptors.Rule]ruleCall
	// hasLeases says that some limit gives leases.
	hasLeases bool
}

// sentPolicy is an element of rate_limits, sent to a domain.
type sentPolicy struct {
	domain string
	at     *tree.Node
}

// findingKey is of a finding.
type findingKey struct {
	code Code
	pos  rules.Pos
}

func (k *checker) report(code Code, severity rules.Severity, pos rules.Pos, format string, args ...any) {
	if p := (findingKey{code, pos}); !k.reported[p] {
		k.reported[p] = pos != rules.Pos{}
		if severity == rules.Warning && (k.config.allowances.Allow(rules.Code(code), pos) || k.set.Allows(rules.Code(code), pos)) {
			return
		}
		k.found = append(k.found, Finding{code, severity, pos, fmt.Sprintf(format, args...)})
	}
}

// tally counts the routes that send an element of rate_limits, and those that do not.
type tally struct {
	sending, notSending int
	// hidden are the rate_limits of those that do not since they have their own.
	hidden []*tree.Node
	// filterElsewhere says that a filter that sends it may be in another part.
	filterElsewhere bool
	// why is the reason of the first that does not, and at its place.
	why string
	at  rules.Pos
}

// perFileKey is a kind of findings in a file.
type perFileKey struct{ kind, file string }

// perFileFinding is a finding that much of a file earns.
type perFileFinding struct {
	code    Code
	pos     rules.Pos
	message string
	// noun the others are, and the places of those that nothing acknowledges.
	noun   string
	others []rules.Pos
}

// reportPerFile is report for a warning that comes once for a file: the places of others, which are called what, follow
// the first one's message.
func (k *checker) reportPerFile(code Code, kind, what string, pos rules.Pos, format string, args ...any) {
	if p := (findingKey{code, pos}); k.reported[p] || k.config.allowances.Allow(rules.Code(code), pos) {
		k.reported[p] = true
		return
	}
	k.reported[findingKey{code, pos}] = true
	key := perFileKey{kind, pos.File}
	if r := k.perFileByKey[key]; r != nil {
		r.others = append(r.others, pos)
		return
	}
	r := &perFileFinding{code: code, pos: pos, message: fmt.Sprintf(format, args...), noun: what}
	k.perFile, k.perFileByKey[key] = append(k.perFile, r), r
}

// addPerFile reports what comes once for a file.
func (k *checker) addPerFile() {
	for _, r := range k.perFile {
		switch n := len(r.others); n {
		case 0:
		case 1:
			r.message += fmt.Sprintf("; so it is with another %s of this file, at line %d", r.noun, r.others[0].Line)
		default:
			r.message += fmt.Sprintf("; so it is with %d other %ss of this file, the next at line %d", n, r.noun, r.others[0].Line)
		}
		k.found = append(k.found, Finding{r.code, rules.Warning, r.pos, r.message})
	}
}
