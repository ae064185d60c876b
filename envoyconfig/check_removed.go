package envoyconfig

import (
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// removals are the policies of a list that exempt every request or replace limits of every request.
type removals struct {
	exempts  *evaluation
	replaces []replacing
}

type replacing struct {
	by   *evaluation
	rule *descriptors.Rule
}

func (k *checker) newRemovals(c *checkedList) (all removals) {
	for i, e := range c.all {
		forms, known := e.forms()
		varies := func(f descriptors.Form) bool { return f.AnyValue || f.Optional }
		if !known || e.never != "" || e.streamDone || len(e.conditions) > 0 || slices.ContainsFunc(forms, varies) ||
			e.node.Field("limit").Exists() {
			continue
		}
		if all.exempts == nil && k.set.Exempts(c.domain, forms) {
			all.exempts = e
		}
		for _, r := range c.reached[i].Rules {
			if r.ReplacesSome() {
				all.replaces = append(all.replaces, replacing{e, r})
			}
		}
	}
	return all
}

// removalReason returns why no request of a route with the given lists is charged to a rule; empty if some may be.
func removalReason(sent []*checkedList, r *descriptors.Rule) string {
	for _, c := range sent {
		if e := c.removals.exempts; e != nil {
			return fmt.Sprintf("the descriptor at %v exempts every request", e.node.Pos())
		}
		for _, o := range c.removals.replaces {
			if len(r.Limits) > 0 &&
				!slices.ContainsFunc(r.Limits, func(l *descriptors.Limit) bool { return !o.rule.Replaces(l) }) {
				return fmt.Sprintf("the descriptor at %v, which every request has, reaches %s, which replaces it",
					o.by.node.Pos(), o.rule.Path())
			}
		}
	}
	return ""
}

// noteRemoved records which rules of a route's lists charge no request, and which ones may charge some.
func (k *checker) noteRemoved(sent []*checkedList) {
	for _, c := range sent {
		for _, reach := range c.reached {
			if k.charged[reach] {
				continue
			}
			k.charged[reach] = true
			for _, r := range reach.Rules {
				why := removalReason(sent, r)
				if before, ok := k.removed[r]; !ok || before != "" {
					k.removed[r] = why
				}
				k.charged[reach] = k.charged[reach] && why == ""
			}
		}
	}
}

// reportRemoved reports the rules that enforce but charge no request.
func (k *checker) reportRemoved() {
	for r, why := range k.removed {
		if why != "" && Enforces(r) && !k.unknownDomains[r.Domain()] {
			k.report(NeverDenies, rules.Warning, r.Pos(), "the limit of %s never denies a request: %s", r.Path(), why)
		}
	}
}
