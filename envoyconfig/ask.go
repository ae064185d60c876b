package envoyconfig

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Unknowable is how the reason begins for which it is not known whether Envoy asks.
const Unknowable = "unknown: "

// Asked is what Envoy asks about a request.
type Asked struct {
	// VirtualHost and Route are where the request goes, "" where it goes nowhere.
	VirtualHost, Route string
	// Pos is the route's place.
	Pos rules.Pos
	// Nothing says why no filter asks; empty if some may. If it is not known whether one
	// does, it begins with [Unknowable].
	Nothing string
	// Calls has one element for each rate limit filter, in order.
	Calls []Call
}

// Call is what one rate limit filter does.
type Call struct {
	Domain string
	// Filter is the place of the filter.
	Filter rules.Pos
	// Nothing says why the filter does not ask. If that is not known, it begins with
	// [Unknowable].
	Nothing string
	// Descriptors has one element for each element of rate_limits that counts.
	Descriptors []Descriptor
	// Before are the filters before this one, by name, that may change the request.
	Before []string
}

// Descriptor is what an element of rate_limits makes of a request.
type Descriptor struct {
	// Pos is the element's place.
	Pos     rules.Pos
	Entries []Entry
	// NotSent says why there is no descriptor, and Unknown why that cannot be known. Both
	// empty say that it is sent.
	NotSent, Unknown string
	// StreamDone says that it is sent at the end of the stream, in a call of its own.
	StreamDone bool
	// HasHits says that hits are sent. HitsUnknown says why their number is not known.
	HasHits     bool
	Hits        uint64
	HitsUnknown string
	Refund      bool

	// keys are those of all actions.
	keys []string
}

// Entry is a key and a value of a descriptor.
type Entry struct{ Key, Value string }

// String returns the descriptor as (key, value)(key, value). Where it is not sent, each
// value is -, and where it is not known, ?.
func (d *Descriptor) String() string {
	var b strings.Builder
	for i, key := range d.keys {
		value := "-"
		switch {
		case d.Unknown != "":
			value = "?"
		case d.NotSent == "":
			if i >= len(d.Entries) {
				return b.String()
			}
			key, value = d.Entries[i].Key, d.Entries[i].Value
		}
		b.WriteString("(" + key + ", " + value + ")")
	}
	return b.String()
}

// Ask returns what Envoy asks about a request.
func (c *Config) Ask(r Request) (*Asked, error) {
	m, err := c.choose(&r)
	if err != nil {
		return nil, err
	}
	a := &Asked{}
	if m.table == nil {
		return nil, fmt.Errorf("%v: %s has no routes in these files: give the answer of /config_dump, or the RouteConfiguration %q too",
			m.node.pos(), m.name(), m.node.at("rds", "route_config_name").str())
	}
	x := &exchange{Request: r, config: c, manager: m}
	h, found := m.table.named(r.RouteName)
	unknown := ""
	if found == nil {
		if unknown = x.unlogged(":authority"); unknown != "" && !m.table.isForAll() {
			a.Nothing = Unknowable + ":authority: " + unknown
			return a, nil
		}
		h = m.table.host(r.Authority)
		if h == nil {
			a.Nothing = fmt.Sprintf("no virtual host has %q", r.Authority)
			return a, nil
		}
		found, unknown = h.pick(x)
	}
	a.VirtualHost = h.name
	switch {
	case unknown != "":
		a.Nothing = Unknowable + unknown
		return a, nil
	case found == nil:
		a.Nothing = fmt.Sprintf("no route of virtual host %q matches", a.VirtualHost)
		return a, nil
	}
	a.Route, a.Pos = found.called(), found.node.pos()
	if why := found.unasked(h, r.Scheme); why != "" {
		a.Nothing = why
		return a, nil
	}
	x.route = found
	if why := x.clusterMissing(); why != "" {
		a.Nothing = why
		return a, nil
	}
	for _, f := range m.asking() {
		a.Calls = append(a.Calls, f.call(x, h))
	}
	return a, nil
}

// choose returns the connection manager that the request comes to.
func (c *Config) choose(r *Request) (*manager, error) {
	var found []*manager
	var names []string
	for _, m := range c.managers {
		if len(m.asking()) > 0 && (r.Listener == "" || r.Listener == m.listener) {
			found = append(found, m)
			names = append(names, m.listener)
		}
	}
	switch {
	case len(found) == 1 && found[0].fragments:
		return nil, fmt.Errorf("%v: parts of a configuration do not say which route a request takes: give the answer of /config_dump of the proxy", found[0].node.pos())
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && r.Listener != "":
		return nil, fmt.Errorf("no listener %q with a rate limit filter is in these files", r.Listener)
	case len(found) == 0:
		return nil, errors.New("no listener with a rate limit filter is in these files, so that Envoy never asks")
	case r.Listener == "":
		return nil, fmt.Errorf("several listeners ask: name one with --listener: %s", strings.Join(names, ", "))
	default:
		return nil, fmt.Errorf("listener %q has several filter chains with a rate limit filter: keep the one in question", r.Listener)
	}
}

// unasked says why Envoy never asks on a route; empty if it may.
func (r *route) unasked(h *virtualHost, scheme string) string {
	if tls := h.node.field("require_tls").enum("NONE", "EXTERNAL_ONLY", "ALL"); tls != "NONE" && scheme == "http" {
		return "require_tls is " + tls + ": the answer is a redirect to https, for which Envoy never asks"
	}
	if r.action.there() || r.fragment {
		return ""
	}
	for _, name := range []string{"direct_response", "redirect"} {
		if r.node.field(name).there() {
			return "the route is a " + name + ", for which Envoy never asks"
		}
	}
	return "the route has no cluster, so that Envoy never asks"
}

func (f *filter) call(x *exchange, h *virtualHost) Call {
	t := x.manager.table
	candidates, config := f.candidates(t, h, x.route)
	c := Call{Domain: f.domain(), Filter: f.node.pos(), Before: x.manager.before(f)}
	if domain := config.field("domain").str(); domain != "" {
		c.Domain = domain
	}
	if _, disabled := f.perRoute(t, h, x.route); disabled {
		c.Nothing = "the filter is disabled here"
		return c
	}
	if kind := f.config.field("request_type").str(); kind != "" && kind != "both" {
		c.Nothing = Unknowable + "request_type is " + kind
		return c
	}
	if enabled := f.config.field("filter_enabled"); enabled.there() && !isAlways(enabled) {
		c.Nothing = Unknowable + "filter_enabled, at " + enabled.pos().String()
		return c
	}
	for _, p := range candidates {
		if p.why == "" {
			c.Descriptors = append(c.Descriptors, p.descriptor(x, p.own))
		}
	}
	if len(c.Descriptors) == 0 {
		c.Nothing = "no rate_limits are for it here"
	}
	return c
}

// isAlways reports whether a fraction is all of them, whatever the runtime says.
func isAlways(fraction *node) bool {
	value := fraction.field("default_value")
	all := map[string]uint64{"HUNDRED": 100, "TEN_THOUSAND": 10_000, "MILLION": 1_000_000}[value.field("denominator").enum("HUNDRED", "TEN_THOUSAND", "MILLION")]
	return !fraction.field("runtime_key").there() && all > 0 && value.field("numerator").uint(0) >= all
}

// before returns the names of the filters before f that may change the request.
func (m *manager) before(f *filter) []string {
	var names []string
	for _, other := range m.filters {
		if other == f {
			break
		}
		if other.typeName != rateLimitFilter {
			names = append(names, other.name)
		}
	}
	return names
}

// descriptor makes the descriptor of a request. Own says that the policy is the filter's
// own, or of its configuration for the route: only there does Envoy send hits.
func (p *policy) descriptor(x *exchange, own bool) Descriptor {
	d := Descriptor{Pos: p.node.pos(), StreamDone: p.late}
	for _, a := range p.actions {
		d.keys = append(d.keys, a.shape().key)
	}
	for _, a := range p.actions {
		made := a.entry(x)
		switch {
		case made.unknown != "" && d.Unknown == "":
			d.Unknown = made.unknown
		case made.absent != "":
			// Whatever the others make, there is no descriptor.
			d.NotSent, d.Unknown = made.absent, ""
			d.Entries = nil
			return d
		case made.has && made.key != "":
			d.Entries = append(d.Entries, Entry{made.key, made.value})
		}
	}
	if hits := p.node.field("hits_addend"); own && hits.there() {
		d.HasHits, d.Hits = true, hits.field("number").uint(0)
		d.Refund = hits.field("is_negative_hits").yes(false)
		if format := hits.field("format"); format.there() {
			d.HitsUnknown = "hits_addend: the format " + format.shown()
		}
	}
	return d
}
