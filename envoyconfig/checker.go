package envoyconfig

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// checker checks a configuration against rules.
type checker struct {
	config *Config
	set    *descriptors.Set
	found  []Finding
	// reported contains the findings reported so far, since many routes lead to the same finding.
	reported map[findingKey]bool
	// domains maps the domain of each filter to the first position that names it. unknownDomains are those whose
	// descriptors cannot be computed; sentDomains are those to which at least one descriptor is sent.
	domains                     map[string]rules.Pos
	unknownDomains, sentDomains map[string]bool
	// fragmentDomains are the domains of filters in fragments, whose routes may be in other files.
	fragmentDomains map[string]bool
	// unmatchedPolicies are policies that no rule of a domain can match. matched are the policies that a rule of some
	// domain can match.
	unmatchedPolicies []unmatchedPolicy
	matched           map[*tree.Node]bool
	// reachedRules are the rules that some descriptor can match.
	reachedRules map[*descriptors.Rule]bool
	tallies      map[*policyList]*tally
	// reaches caches the results of Reach by domain and entries; lists caches the checked lists, sent are all of them, and
	// ends, waits and leaseLists are the checks that have run. pairs are the counters that two lists charge.
	reaches    map[string]*descriptors.Reach
	lists      map[checkedKey]*checkedList
	sent       []*checkedList
	ends       map[any]bool
	pairs      map[[2]*checkedList][]string
	waits      map[waitKey]bool
	leaseLists map[string][]leasePolicy
	statement  Statement
	// rows are the rows of the statement, by list and routes with equal effects. unlimited are the rows of routes without
	// limits.
	rows      map[rowsKey][]*Row
	unlimited map[unlimitedKey]*Row
	// byRoute are the evaluations of policies that depend on routes.
	byRoute map[*tree.Node][]*evaluation
	// managers are the checks of routes that have run.
	managers map[managerKey]bool
	// buckets maps a rule to the ID of a bucket that it can match.
	buckets map[*descriptors.Rule]*tree.Node
	// needs caches the results of needsOf.
	needs map[valueKey]*ruleNeeds
	// taken maps a policy to the reason why all requests with its header take earlier routes; empty if some do not.
	taken map[*tree.Node]string
	// removed maps a rule to the reason why no request is charged to it; empty if some are. charged has the reaches whose
	// rules are all charged.
	removed map[*descriptors.Rule]string
	charged map[*descriptors.Reach]bool
	// connections are the descriptors of network filters by filter chain, service and entries.
	connections map[string]*tree.Node
	// networkDomains are the domains that only network filters use.
	networkDomains map[string]bool
	// quotaDomains are the domains of quota filters.
	quotaDomains map[string]bool
	// calledFor maps a rule with quota to a policy that calls the rate limit service for it.
	calledFor map[*descriptors.Rule]ruleCall
	// hasLeases is true if some limit grants leases.
	hasLeases bool
	// reportedEndCall is true once it is reported that the end call of some element may crash Envoy.
	reportedEndCall bool
}

// findingKey identifies a finding: its code and position.
type findingKey struct {
	code Code
	pos  rules.Pos
}

// report adds a finding unless its position has one with the same code. An acknowledged warning is not added.
func (k *checker) report(code Code, severity rules.Severity, pos rules.Pos, format string, args ...any) {
	if p := (findingKey{code, pos}); !k.reported[p] {
		k.reported[p] = pos != rules.Pos{}
		if severity == rules.Warning &&
			(k.config.allowances.Allow(rules.Code(code), pos) || k.set.Allows(rules.Code(code), pos)) {
			return
		}
		k.found = append(k.found, Finding{code, severity, pos, fmt.Sprintf(format, args...)})
	}
}

// tally counts the routes that send a policy and those that do not.
type tally struct {
	sending, notSending int
	// hidden are the rate_limits of routes that do not send the policy because they have their own.
	hidden []*tree.Node
	// filterElsewhere is true if the filter that sends the policy may be in another fragment.
	filterElsewhere bool
	// why is the reason of the first route that does not send the policy, and at is its position.
	why string
	at  rules.Pos
}

// mergeEqual keeps the first of equal warnings of a file, which names the number of the others. The findings are sorted.
func mergeEqual(all []Finding) (merged []Finding) {
	first := map[Finding]int{} // indexes of merged, by the findings without their lines
	others := map[int][]int{}  // the lines of the others
	for _, f := range all {
		key := f
		key.Pos = rules.Pos{File: f.Pos.File}
		if i, known := first[key]; known && f.Severity == rules.Warning {
			others[i] = append(others[i], f.Pos.Line)
			continue
		}
		first[key] = len(merged)
		merged = append(merged, f)
	}
	for i, lines := range others {
		merged[i].Message += fmt.Sprintf("; the same applies to %s of this file, the next is %d",
			rules.Count(len(lines), "other line"), lines[0])
	}
	return merged
}
