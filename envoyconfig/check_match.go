package envoyconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// checkPolicy checks that a rule can match the policy's descriptors. It returns the rules that can.
func (k *checker) checkPolicy(domain string, m *manager, p *policy) *descriptors.Reach {
	if !slices.Contains(k.set.Domains(), domain) {
		return &descriptors.Reach{}
	}
	forms, known := p.forms()
	reach := k.set.Reach(domain, forms)
	for _, r := range reach.Rules {
		k.reachedRules[r] = true
		if known && k.calledFor[r].at == nil {
			k.calledFor[r] = ruleCall{p.node, slices.ContainsFunc(reach.Rules, func(r *descriptors.Rule) bool { return r.Divided() == nil })}
		}
	}
	// A limit that comes with the descriptor needs no rule, nor does an entry that exempts requests.
	needs := known && !p.node.Field("limit").Exists() && !k.set.MayExempt(domain, forms)
	switch {
	case needs && reach.Reason != "":
		severity, more := rules.Error, k.hint(domain, p, forms)
		if m.hasLocal(p) {
			severity, more = rules.Note, more+"; the local rate limit filter also uses it"
		}
		k.unmatchedPolicies = append(k.unmatchedPolicies, unmatchedPolicy{p.node, severity, fmt.Sprintf("no rule of domain %q can match %s: %s%s", rules.Shorten(domain), formsText(forms), reach.Reason, more)})
	case needs:
		k.checkSkipIfAbsent(domain, p, forms)
	}
	if reach.Reason == "" {
		k.matched[p.node] = true
	}
	return &reach
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
			l.severity, l.message = rules.Note, l.message+"; a rule of another filter's domain can"
		}
		k.report(Unmatched, l.severity, l.at.Pos(), "%s", l.message)
	}
}

// forms returns the known parts of the policy's entries. known is false if the key of an entry is unknown.
func (p *policy) forms() (forms []descriptors.Form, known bool) {
	forms, known = make([]descriptors.Form, len(p.actions)), true
	for i, a := range p.actions {
		s := a.form
		forms[i] = descriptors.Form{Key: s.key, Value: s.value, AnyKey: s.anyKey, AnyValue: s.anyValue, Optional: s.optional}
		known = known && !s.anyKey
	}
	return forms, known
}

// checkSkipIfAbsent checks that a rule can match the rest of a descriptor when an optional entry is absent.
func (k *checker) checkSkipIfAbsent(domain string, p *policy, forms []descriptors.Form) {
	for i, f := range forms {
		rest := slices.Delete(slices.Clone(forms), i, i+1)
		if !f.Optional || len(rest) == 0 { // Envoy does not send empty descriptors
			continue
		}
		if reach := k.set.Reach(domain, rest); reach.Reason != "" {
			k.report(Unmatched, rules.Warning, p.actions[i].node.Pos(), "requests without %s are not limited here: skip_if_absent leaves %s, which no rule of domain %q can match: %s; "+
				"add a rule for it, or remove skip_if_absent so that nothing is sent", rules.Shorten(f.Key), formsText(rest), rules.Shorten(domain), reach.Reason)
		}
	}
}

// formsText formats a descriptor as Envoy's documentation does: (user, *)(path, /search). Optional entries are in
// brackets.
func formsText(forms []descriptors.Form) string {
	var b strings.Builder
	for _, f := range forms {
		key, value := f.Key, f.Value
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

// reportUnsentRules reports the rules that no descriptor can match.
func (k *checker) reportUnsentRules() {
	for _, l := range k.set.Limits {
		if r := l.Rule; !k.reachedRules[r] && r.Divided() == nil && k.sentDomains[r.Domain()] && !k.unknownDomains[r.Domain()] {
			message := "no route sends a descriptor that %s can match: add its actions to the rate_limits of a route or virtual host"
			if k.networkDomains[r.Domain()] {
				message = "no filter sends a descriptor that %s can match: add it to the descriptors of a network filter"
			}
			k.report(Unsent, rules.Warning, r.Pos(), message, r.Path())
		}
	}
}
