package envoyconfig

import (
	"hash/maphash"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// checkHits holds that hits arrive, and that those of the end of a stream are counted.
func (k *checker) checkHits(p candidate, reach *descriptors.Reach) {
	if at := p.node.Field("hits_addend"); at.Exists() && !p.own {
		k.report(HitsDropped, rules.Error, at.Pos(), "Envoy does not send hits_addend from the rate_limits of a route or virtual host: "+
			"move this element to the filter's typed_per_filter_config (RateLimitPerRoute), or to the filter")
	}
	if !p.streamDone {
		return
	}
	for _, r := range reach.Rules {
		if names := leaseNames(r); len(names) > 0 && slices.Contains(names, leaseKey(p.policy)) {
			continue
		}
		least := p.limitBelowHits(r)
		for _, l := range r.Limits {
			switch {
			case r.Unlimited || l.Policy.CountRefused || l.Policy.UsesLeases():
			case least != nil:
				k.report(Debt, rules.Error, p.node.Pos(), "%s at %v is never charged: %s at the end of a stream never fit into the limit at %v, which admits %d: set count_refused: true",
					r.Path(), l.Pos, rules.Count(p.hitCount(), "hit"), least.Pos, least.Policy.Capacity())
			default:
				k.report(Debt, rules.Warning, p.node.Pos(), "what is sent at the end of a stream has happened, but %s at %v does not count it where it is over: set count_refused: true", r.Path(), l.Pos)
			}
		}
	}
}

// hitCount returns how many hits are sent, 1 where their number is not known.
func (p candidate) hitCount() int {
	hits := p.node.Field("hits_addend")
	if !p.own || hits.Field("format").Exists() || hits.Field("is_negative_hits").Bool(false) {
		return 1
	}
	return int(hits.Field("number").Uint(1)) //nolint:gosec // Envoy takes at most 10^9
}

// limitBelowHits returns a limit of a rule that has no room for the hits that are sent, however little of it is used, so
// that the request is denied and no limit of the rule is charged; nil if there is none. A limit of 0 denies all.
func (p candidate) limitBelowHits(r *descriptors.Rule) *descriptors.Limit {
	if p.node.Field("limit").Exists() || slices.ContainsFunc(r.Limits, func(l *descriptors.Limit) bool { return l.Table != nil }) {
		return nil // the numbers are others
	}
	for _, l := range r.Limits {
		if most := l.Policy.Capacity(); !l.Policy.UsesLeases() && 0 < most && most < uint64(p.hitCount()) { //nolint:gosec // it is positive
			return l
		}
	}
	return nil
}

// checkActions looks for values that are not what they seem. f is the filter that sends them, nil if it is
// not known.
func (k *checker) checkActions(m *manager, f *filter, p candidate) {
	if f != nil {
		k.checkSetters(m, f, p)
	}
	if key := p.node.Field("disable_key"); key.Text != "" {
		if why, never := k.config.runtime.disabled(elementEnabled(key.Text)); never {
			k.report(NeverAsked, rules.Warning, key.Pos(), "%s, so that this is not sent", why)
		}
	}
	for _, a := range p.actions {
		switch a.kind {
		case "request_headers":
			switch a.header() {
			case "x-forwarded-for":
				k.report(SameAddress, rules.Warning, a.node.Pos(), "x-forwarded-for is all that a client wrote there, and behind it the address, so that a client can have as many counters as it likes: "+
					"send remote_address or masked_remote_address")
			case ":path":
				k.report(QueryInKey, rules.Warning, a.node.Pos(), ":path has the query too, so that each query string has a counter of its own: "+
					"send a generic_key from a route for each path, or a header without the query")
			}
		case "remote_address", "masked_remote_address", "remote_address_match":
			k.checkAddress(m, a.node)
		}
	}
	k.checkContradictions(p)
}

// checkSetters holds that the filters that set what actions read run before the rate limit filter.
func (k *checker) checkSetters(m *manager, f *filter, p candidate) {
	for _, a := range p.actions {
		switch {
		case (a.kind == "metadata" || a.kind == "dynamic_metadata") && metadataSource(a.node) == "DYNAMIC":
			why := m.unsetMetadataReason(f, a.node.Field("metadata_key"), p.streamDone)
			switch {
			case why == "":
			case a.shape.optional || a.node.Field("default_value").Exists():
				k.report(NeverAsked, rules.Warning, a.node.Pos(), "the entry never has a value of its own: %s", why)
			default:
				k.report(NeverAsked, rules.Error, a.node.Pos(), "nothing is sent: %s", why)
			}
		case a.kind == "request_headers":
			if later := m.headerSetAfter(f, a.header()); later != nil {
				k.report(NeverAsked, rules.Warning, a.node.Pos(), "the filter that sets the header %s, at %v, runs after the rate limit filter, which reads what the client sent: put it before",
					rules.Shorten(a.header()), later.node.Pos())
			}
		}
	}
	if key := p.node.At("limit", "dynamic_metadata", "metadata_key"); key.Exists() {
		if why := m.unsetMetadataReason(f, key, p.streamDone); why != "" {
			k.report(NeverAsked, rules.Warning, key.Pos(), "the limit is never sent: %s", why)
		}
	}
}

// checkContradictions holds that some request has all entries of an element: Envoy sends nothing where one is absent.
func (k *checker) checkContradictions(p candidate) {
	type match struct {
		of     uint64 // the hash of what is looked for
		expect bool
	}
	seen := map[match]*tree.Node{}
	for _, a := range p.actions {
		of := a.node.Field(map[string]string{"header_value_match": "headers", "query_parameter_value_match": "query_parameters"}[a.kind])
		if !of.Exists() || a.node.Field("default_value").Exists() {
			continue
		}
		var h maphash.Hash
		h.SetSeed(tableSeed)
		of.Hash(&h)
		m := match{h.Sum64(), a.node.Field("expect_match").Bool(true)}
		if other := seen[match{m.of, !m.expect}]; other != nil {
			k.report(NeverAsked, rules.Error, a.node.Pos(), "no request has this entry and that at %v, which wants the opposite, so that nothing is sent: make a list of actions for each", other.Pos())
		}
		seen[m] = a.node
	}
}

// checkAddress holds that the connection manager finds the client's address.
func (k *checker) checkAddress(m *manager, at *tree.Node) {
	n := m.node
	if m.fragments || n.Field("use_remote_address").Bool(false) || n.Field("xff_num_trusted_hops").Uint(0) > 0 || n.Field("original_ip_detection_extensions").Exists() {
		return
	}
	k.report(SameAddress, rules.Warning, at.Pos(), "the address is the last of x-forwarded-for, which any client can send, or else the one that connects: "+
		"set use_remote_address: true at the edge, and xff_num_trusted_hops behind proxies (connection manager at %v)", n.Pos())
}
