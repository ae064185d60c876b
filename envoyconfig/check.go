package envoyconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Check returns what stands between the configuration and the rules, in the order of files
// and lines.
func (c *Config) Check(set *descriptors.Set) []Finding {
	k := &checker{config: c, set: set, seen: map[sent]bool{}, asked: map[string]bool{}, dark: map[string]bool{}, reached: map[*descriptors.Rule]bool{}}
	asking := 0
	for _, m := range c.managers {
		asking += len(m.asking())
		k.manager(m)
	}
	if asking == 0 {
		k.report(Domain, rules.Error, rules.Pos{}, "no listener has a rate limit filter before its router, so that Envoy never asks: add one to http_filters")
		return k.found
	}
	k.domains()
	k.unsent()
	sortFindings(k.found)
	return k.found
}

type checker struct {
	config *Config
	set    *descriptors.Set
	found  []Finding
	// seen are the descriptors that have been looked at: a virtual host's are sent by many
	// routes.
	seen map[sent]bool
	// asked are the domains of filters. For those in dark it is not known what is sent.
	asked, dark map[string]bool
	// reached are the rules that something sent can match.
	reached map[*descriptors.Rule]bool
}

// sent is an element of rate_limits, sent to a domain.
type sent struct {
	domain string
	at     *node
}

func (k *checker) report(code Code, severity rules.Severity, pos rules.Pos, format string, args ...any) {
	k.found = append(k.found, Finding{code, severity, pos, fmt.Sprintf(format, args...)})
}

// manager looks at what the filters of a connection manager send on each route.
func (k *checker) manager(m *manager) {
	for _, f := range m.asking() {
		k.domain(f.domain(), f.config.field("domain"))
		if m.table == nil {
			k.dark[f.domain()] = true
			k.report(Unknown, rules.Note, m.node.pos(), "the routes of %s are not in these files: give the answer of /config_dump, or the RouteConfiguration %q too",
				m.name(), m.node.at("rds", "route_config_name").str())
			continue
		}
		for _, h := range m.table.hosts {
			if tree := h.node.field("matcher"); tree.there() {
				k.dark[f.domain()] = true
				k.report(Unknown, rules.Note, tree.pos(), "what a tree of matchers leads to is not looked at")
			}
			for _, r := range h.routes {
				k.route(f, m.table, h, r)
			}
		}
	}
}

func (k *checker) route(f *filter, t *table, h *virtualHost, r *route) {
	if _, disabled := f.perRoute(t, h, r); disabled || r.unasked(h, "https") != "" {
		return
	}
	asks, config := f.asks(t, h, r)
	domain := f.domain()
	if own := config.field("domain"); own.str() != "" {
		domain = own.str()
		k.domain(domain, own)
	}
	for _, p := range asks {
		if s := (sent{domain, p.node}); !k.seen[s] {
			k.seen[s] = true
			k.policy(domain, p)
		}
	}
}

// domain holds that a filter's domain has rules.
func (k *checker) domain(name string, at *node) {
	if k.asked[name] {
		return
	}
	k.asked[name] = true
	if names := k.set.Domains(); !slices.Contains(names, name) {
		k.report(Domain, rules.Error, at.pos(), "no rules are for the domain %q that this filter asks about, so that nothing is limited%s",
			rules.Shorten(name), rules.DidYouMean(rules.Nearest(name, names)))
	}
}

// policy holds that a rule can match what an element of rate_limits makes.
func (k *checker) policy(domain string, p *policy) {
	if !slices.Contains(k.set.Domains(), domain) {
		return
	}
	forms := make([]descriptors.Form, len(p.actions))
	known := true
	for i, a := range p.actions {
		s := a.shape()
		forms[i] = descriptors.Form{Key: s.key, Value: s.value, AnyKey: s.anyKey, AnyValue: s.anyValue, Optional: s.optional}
		known = known && !s.anyKey
	}
	reach := k.set.Reach(domain, forms)
	for _, r := range reach.Rules {
		k.reached[r] = true
	}
	// A limit that comes with the descriptor needs no rule.
	if reach.Reason != "" && known && !p.node.field("limit").there() {
		k.report(Unmatched, rules.Error, p.node.pos(), "no rule of domain %q can match %s: %s", rules.Shorten(domain), formsText(forms), reach.Reason)
	}
}

// formsText is a descriptor as the facts of Envoy write it: (user, *)(path, /search).
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

// domains holds that a filter asks about each domain of the rules.
func (k *checker) domains() {
	for _, name := range k.set.Domains() {
		if k.asked[name] {
			continue
		}
		pos := rules.Pos{}
		for _, l := range k.set.Limits {
			if l.Rule.Domain() == name {
				pos = l.Rule.Pos()
				break
			}
		}
		k.report(Domain, rules.Error, pos, "no filter asks about the domain %q, so that its rules limit nothing: set the domain of a rate limit filter", rules.Shorten(name))
	}
}

// unsent holds that each rule can be matched by something that a route sends.
func (k *checker) unsent() {
	looked := map[*descriptors.Rule]bool{}
	for _, l := range k.set.Limits {
		r := l.Rule
		if looked[r] || k.reached[r] || !k.asked[r.Domain()] || k.dark[r.Domain()] {
			continue
		}
		looked[r] = true
		k.report(Unsent, rules.Warning, r.Pos(), "no route sends a descriptor that %s can match: add its actions to the rate_limits of a route or virtual host", r.Path())
	}
}
