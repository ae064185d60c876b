package envoyconfig

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

func (k *checker) count(at *tree.Node, r *route, why string) {
	t := k.tallies[at]
	if t == nil {
		t = &tally{}
		k.tallies[at] = t
	}
	if why == "" {
		t.sent++
		return
	}
	if t.not++; t.not == 1 {
		t.why, t.at = why, r.node.Pos()
	}
}

// never reports the elements of rate_limits that some routes do not send, which may be on
// purpose, or that none does, and filters for which there are none.
func (k *checker) never() {
	unsent := false
	for at, t := range k.tallies {
		switch {
		case t.sent == 0:
			unsent = true
			k.report(NeverAsked, rules.Error, at.Pos(), "no route sends this: %s (route %v)", t.why, t.at)
		case t.not > 0:
			k.report(NeverAsked, rules.Note, at.Pos(), "%d of %d routes do not send this; the first, at %v: %s", t.not, t.not+t.sent, t.at, t.why)
		}
	}
	for domain, at := range k.domains {
		if !k.lit[domain] && !k.dark[domain] && !unsent {
			k.report(NeverAsked, rules.Error, at, "nothing is sent to domain %q: add rate_limits to a virtual host or a route", rules.Shorten(domain))
		}
	}
}
