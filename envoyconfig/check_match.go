package envoyconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// reach returns what descriptors of the given forms can match, once for all with the same forms.
func (k *checker) reach(domain string, forms []descriptors.Form) *descriptors.Reach {
	key := fmt.Sprintf("%q %#v", domain, forms)
	found := k.reaches[key]
	if found == nil {
		reach := k.set.Reach(domain, forms)
		found = &reach
		for _, r := range reach.Rules {
			k.reachedRules[r] = true
		}
		k.reaches[key] = found
	}
	return found
}

// checkPolicy checks that a rule can match the policy's descriptors. It returns the rules that can.
func (k *checker) checkPolicy(domain string, m *manager, e *evaluation) *descriptors.Reach {
	if !slices.Contains(k.set.Domains(), domain) {
		return &descriptors.Reach{}
	}
	forms, known := e.forms()
	reach := k.reach(domain, forms)
	if known && len(k.set.Divided()) > 0 {
		k.noteQuotaCalls(e.policy, reach)
	}
	// A limit that comes with the descriptor needs no rule, nor does an entry that exempts requests.
	needs := known && e.never == "" && !e.node.Field("limit").Exists() && !k.set.MayExempt(domain, forms)
	switch {
	case needs && reach.Reason != "":
		severity := rules.Error
		more := k.hint(domain, e.policy, forms)
		if m.hasLocal(e.stage) {
			severity = rules.Note
			more += "; the local rate limit filter also uses it"
		}
		k.unmatchedPolicies = append(k.unmatchedPolicies, unmatchedPolicy{
			e.node, severity, fmt.Sprintf("no rule of domain %q can match %s: %s%s", rules.Shorten(domain), formsText(forms), reach.Reason, more),
		})
	case needs:
		k.checkSkipIfAbsent(domain, e.policy, forms)
	}
	if reach.Reason == "" {
		k.matched[e.node] = true
	}
	return reach
}

// valueKey identifies rules and the kinds of the entries that reach them. Equal slices of rules come from one reach.
type valueKey struct {
	first **descriptors.Rule
	kinds string
}

func keyOfValues(e *evaluation, reached []*descriptors.Rule) valueKey {
	if len(reached) == 0 {
		return valueKey{}
	}
	var kinds strings.Builder
	for i := range e.entries {
		a := e.actions[i]
		fmt.Fprintf(&kinds, "%t %q %q %q ", e.entries[i].form.anyValue, e.entries[i].source, a.kind, a.header())
	}
	return valueKey{&reached[0], kinds.String()}
}

// ruleNeeds are the values that the rules need which a policy reaches.
type ruleNeeds struct {
	// conditions describe the values that a descriptor needs to match one of the rules; none if a rule matches all.
	conditions []string
	impossible []impossibleRule
}

// impossibleRule is a rule with a value that no entry of the given action has.
type impossibleRule struct {
	rule   *descriptors.Rule
	action int
	why    string
}

// needsOf returns the needs of rules, once for all policies of the same kinds of entries.
func (k *checker) needsOf(e *evaluation, reached []*descriptors.Rule) *ruleNeeds {
	key := keyOfValues(e, reached)
	found := k.needs[key]
	if found == nil {
		found = newRuleNeeds(e, reached)
		k.needs[key] = found
	}
	return found
}

func newRuleNeeds(e *evaluation, reached []*descriptors.Rule) *ruleNeeds {
	n := &ruleNeeds{}
	matchesAll := false
	for _, r := range reached {
		var values []string
		levels := r.Levels()
		isImpossible := false
		for i := range levels {
			value := levels[i].Value
			if len(levels) != len(e.entries) || value == "" || !e.entries[i].form.anyValue {
				continue
			}
			if value != "*" {
				values = append(values, "whose "+rules.Shorten(e.entries[i].source)+" is "+rules.Shorten(value))
			}
			a := e.actions[i]
			if why := impossibleValue(a.kind, a.header(), value); why != "" && !isImpossible {
				isImpossible = true
				n.impossible = append(n.impossible, impossibleRule{
					r, i, fmt.Sprintf("no request has the value %s, which %s needs, since %s", rules.Shorten(value), r.Path(), why),
				})
			}
		}
		matchesAll = matchesAll || values == nil
		if n.conditions == nil {
			n.conditions = []string{strings.Join(values, " and ")}
		} else {
			n.conditions = []string{"with values of these rules"}
		}
	}
	if matchesAll {
		n.conditions = nil
	}
	return n
}

// checkRuleValues finds rules with values that no entry of a policy which reaches them has.
func (k *checker) checkRuleValues(e *evaluation, reach *descriptors.Reach) {
	all := k.needsOf(e, reach.Rules).impossible
	for _, i := range all {
		if len(all) == len(reach.Rules) {
			k.report(NoEffect, rules.Error, e.actions[i.action].node.Pos(), "%s", i.why)
		} else {
			k.report(Unsent, rules.Warning, i.rule.Pos(), "%s", i.why)
		}
	}
}

// noteQuotaCalls records that a policy calls the rate limit service for rules with quota.
func (k *checker) noteQuotaCalls(p *policy, reach *descriptors.Reach) {
	hasOthers := slices.ContainsFunc(reach.Rules, func(r *descriptors.Rule) bool { return r.Divided() == nil })
	for _, r := range reach.Rules {
		if k.calledFor[r].at == nil {
			k.calledFor[r] = ruleCall{p.node, hasOthers}
		}
	}
}

// unmatchedPolicy is a policy that no rule of a domain can match.
type unmatchedPolicy struct {
	at       *tree.Node
	severity rules.Severity
	message  string
}

// reportUnmatched reports the policies that no rule can match. If two filters have the same stage, both send the
// policies meant for one of them, so a match in another domain makes the finding a note.
func (k *checker) reportUnmatched() {
	for _, l := range k.unmatchedPolicies {
		if k.matched[l.at] {
			l.severity = rules.Note
			l.message += "; a rule of another filter's domain can"
		}
		k.report(Unmatched, l.severity, l.at.Pos(), "%s", l.message)
	}
}

// checkSkipIfAbsent checks that a rule can match the rest of a descriptor when an optional entry is absent.
func (k *checker) checkSkipIfAbsent(domain string, p *policy, forms []descriptors.Form) {
	for i, f := range forms {
		rest := slices.Delete(slices.Clone(forms), i, i+1)
		if !f.Optional || len(rest) == 0 { // Envoy does not send empty descriptors
			continue
		}
		if reach := k.reach(domain, rest); reach.Reason != "" {
			k.report(Unmatched, rules.Warning, p.actions[i].node.Pos(), "requests without %s are not limited here: skip_if_absent leaves %s, which no rule of domain %q can match: %s; "+
				"add a rule for it, or remove skip_if_absent so that nothing is sent", rules.Shorten(f.Key),
				formsText(rest), rules.Shorten(domain), reach.Reason)
		}
	}
}

// formsText formats a descriptor as Envoy's documentation does: (user, *)(path, /search). Optional entries are in
// brackets.
func formsText(forms []descriptors.Form) string {
	var b strings.Builder
	for _, f := range forms {
		key := f.Key
		value := f.Value
		if f.AnyKey {
			key = "*"
		}
		if f.AnyValue {
			value = "*"
		}
		entry := "(" + rules.Shorten(key) + ", " + rules.Shorten(value) + ")"
		if f.Optional {
			entry = "[" + entry + "]"
		}
		b.WriteString(entry)
	}
	return b.String()
}

// rulesOf returns the rules that have limits.
func rulesOf(set *descriptors.Set) (all []*descriptors.Rule) {
	for _, l := range set.Limits {
		if len(all) == 0 || all[len(all)-1] != l.Rule {
			all = append(all, l.Rule)
		}
	}
	return all
}

// reportUnsentRules reports the rules that no descriptor can match, and adds them to the statement.
func (k *checker) reportUnsentRules() {
	for _, r := range rulesOf(k.set) {
		if k.reachedRules[r] || r.Divided() != nil {
			continue
		}
		k.statement.Rows = append(k.statement.Rows, &Row{
			Pos: r.Pos(), Domain: r.Domain(), Rules: []*descriptors.Rule{r}, Asked: NeverAsked, Why: "no descriptor reaches it",
		})
		message := "no route sends a descriptor that %s can match: add its actions to the rate_limits of a route or virtual host"
		if k.networkDomains[r.Domain()] {
			message = "no filter sends a descriptor that %s can match: add it to the descriptors of a network filter"
		}
		if k.sentDomains[r.Domain()] && !k.unknownDomains[r.Domain()] {
			k.report(Unsent, rules.Warning, r.Pos(), message, r.Path())
		}
	}
}

// hint returns a remedy if a common mistake is the reason why no rule matches a descriptor; empty otherwise.
func (k *checker) hint(domain string, p *policy, forms []descriptors.Form) string {
	matches := func(change func([]descriptors.Form)) bool {
		other := slices.Clone(forms)
		change(other)
		return k.matches(domain, other)
	}
	for i, a := range p.actions {
		other := map[string]string{
			"remote_address": "masked_remote_address", "masked_remote_address": "remote_address",
		}[a.kind]
		switch {
		case other != "" && matches(func(f []descriptors.Form) { f[i].Key = other }):
			return fmt.Sprintf("; the key of a %s entry is not %s: change the key of the rule to %s, or the action to %s", a.kind, other, a.kind, other)
		case a.hasDefaultKey() && matches(func(f []descriptors.Form) { f[i].AnyKey = true }):
			return fmt.Sprintf("; without descriptor_key the key of %s is %s: add descriptor_key, or use this key in the rule", a.kind, rules.Shorten(a.form.key))
		}
	}
	if order := k.findMatchingOrder(domain, forms); order != nil {
		return "; the rules have these entries in the order " + formsText(order) + ": reorder the actions"
	}
	return ""
}

// hasDefaultKey reports whether the action uses its default descriptor_key.
func (a *action) hasDefaultKey() bool {
	acceptsKey := slices.Contains([]string{
		"generic_key", "header_value_match", "query_parameter_value_match", "remote_address_match",
	}, a.kind)
	return acceptsKey && a.node.Field("descriptor_key").Text == ""
}

// matches reports whether a rule can match a descriptor.
func (k *checker) matches(domain string, forms []descriptors.Form) bool {
	reach := k.set.Reach(domain, forms)
	return reach.Reason == ""
}

// findMatchingOrder returns another order of the forms that a rule can match; nil if there is none or there are too many
// forms.
func (k *checker) findMatchingOrder(domain string, forms []descriptors.Form) []descriptors.Form {
	const maxForms = 4
	if len(forms) < 2 || len(forms) > maxForms {
		return nil
	}
	var try func(done, left []descriptors.Form) []descriptors.Form
	try = func(done, left []descriptors.Form) []descriptors.Form {
		if len(left) == 0 && k.matches(domain, done) {
			return done
		}
		for i := range left {
			if found := try(append(slices.Clone(done), left[i]), slices.Delete(slices.Clone(left), i, i+1)); found != nil {
				return found
			}
		}
		return nil
	}
	return try(nil, forms)
}
