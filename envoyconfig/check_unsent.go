package envoyconfig

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// countRoute counts a route for a list. why is the reason why the route does not send the list; empty if it does.
func (k *checker) countRoute(l *policyList, r *route, why string) {
	t := k.tallies[l]
	if t == nil {
		t = &tally{}
		k.tallies[l] = t
	}
	if why == "" {
		t.sending++
		return
	}
	if t.notSending++; t.notSending == 1 {
		t.why = why
		t.at = r.node.Pos()
	}
	if why == hiddenByRoute {
		t.hidden = append(t.hidden, r.action.Field("rate_limits"))
	}
}

// reportNeverSent reports policies that no route sends or, as a note, that some routes do not send, and filters
// without policies.
func (k *checker) reportNeverSent() {
	unsent := false
	for l, t := range k.tallies {
		unsent = unsent || t.sending == 0
		for _, own := range t.hidden {
			if t.sending > 0 {
				k.report(NoEffect, rules.Warning, own.Pos(), "the route has its own rate_limits and therefore does not send those of its virtual host: to send both, set include_vh_rate_limits: true next to its rate_limits, "+
					"or vh_rate_limits: INCLUDE; if this is intended, set vh_rate_limits: OVERRIDE")
			}
		}
		for _, p := range l.policies {
			switch {
			case t.sending == 0:
				severity := rules.Error
				if t.filterElsewhere {
					severity = rules.Warning // the filter may be in another fragment
				}
				k.report(NoEffect, severity, p.node.Pos(), "no route sends this descriptor: %s (route %v)", t.why, t.at)
			case t.notSending > 0:
				k.report(NoEffect, rules.Note, p.node.Pos(), "%d of %d routes do not send this descriptor; the first, at %v: %s", t.notSending, t.notSending+t.sending, t.at, t.why)
			}
		}
	}
	for policy, why := range k.taken {
		if why != "" {
			k.report(NoEffect, rules.Warning, policy.Pos(), "the descriptor is never sent: %s", why)
		}
	}
	for domain, at := range k.domains {
		if k.sentDomains[domain] || k.quotaDomains[domain] || k.unknownDomains[domain] || unsent {
			continue
		}
		if k.fragmentDomains[domain] {
			k.report(Unknown, rules.Note, at, "these files contain no rate_limits, so the descriptors of domain %q are unknown: also pass the virtual hosts or routes", rules.Shorten(domain))
		} else {
			k.report(NoEffect, rules.Error, at, "no descriptor is sent to domain %q: add rate_limits to a virtual host or a route", rules.Shorten(domain))
		}
	}
}
