package envoyconfig

import (
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// hint returns a remedy if a common mistake is the reason why no rule matches a descriptor; empty otherwise.
func (k *checker) hint(domain string, p *policy, forms []descriptors.Form) string {
	matches := func(change func([]descriptors.Form)) bool {
		other := slices.Clone(forms)
		change(other)
		reach := k.set.Reach(domain, other)
		return reach.Reason == ""
	}
	for i, a := range p.actions {
		other := map[string]string{"remote_address": "masked_remote_address", "masked_remote_address": "remote_address"}[a.kind]
		switch {
		case other != "" && matches(func(f []descriptors.Form) { f[i].Key = other }):
			return fmt.Sprintf("; the key of a %s entry is not %s: change the key of the rule to %s, or the action to %s", a.kind, other, a.kind, other)
		case a.hasDefaultKey() && matches(func(f []descriptors.Form) { f[i].AnyKey = true }):
			return fmt.Sprintf("; without descriptor_key the key of %s is %s: add descriptor_key, or use this key in the rule", a.kind, rules.Shorten(a.form.key))
		}
	}
	if order := findMatchingOrder(forms, func(other []descriptors.Form) bool {
		reach := k.set.Reach(domain, other)
		return reach.Reason == ""
	}); order != nil {
		return "; the rules have these entries in the order " + formsText(order) + ": reorder the actions"
	}
	return ""
}

// hasDefaultKey reports whether the action uses its default descriptor_key.
func (a *action) hasDefaultKey() bool {
	acceptsKey := slices.Contains([]string{"generic_key", "header_value_match", "query_parameter_value_match", "remote_address_match"}, a.kind)
	return acceptsKey && a.node.Field("descriptor_key").Text == ""
}

// findMatchingOrder returns the first other order of the forms for which matches returns true; nil if there is none or
// there are too many forms.
func findMatchingOrder(forms []descriptors.Form, matches func([]descriptors.Form) bool) []descriptors.Form {
	const maxForms = 4
	if len(forms) < 2 || len(forms) > maxForms {
		return nil
	}
	var try func(done, left []descriptors.Form) []descriptors.Form
	try = func(done, left []descriptors.Form) []descriptors.Form {
		if len(left) == 0 && matches(done) {
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
