package envoyconfig

import (
	"hash/maphash"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// checkHits checks that Envoy sends the hits, and that limits count the hits sent at the end of a stream.
func (k *checker) checkHits(p filterPolicy, reach *descriptors.Reach) {
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
				k.report(UncountedHits, rules.Error, p.node.Pos(), "%s at %v is never charged: %s at the end of a stream exceed the limit at %v, which allows %d: set count_refused: true",
					r.Path(), l.Pos, rules.Count(p.hitCount(), "hit"), least.Pos, least.Policy.Capacity())
			default:
				k.report(UncountedHits, rules.Warning, p.node.Pos(), "hits sent at the end of a stream have already happened, but %s at %v does not count them once it is over its limit: set count_refused: true", r.Path(), l.Pos)
			}
		}
	}
}

// hitCount returns the number of hits sent, 1 if it is unknown.
func (p filterPolicy) hitCount() int {
	hits := p.node.Field("hits_addend")
	if !p.own || hits.Field("format").Exists() || hits.Field("is_negative_hits").Bool(false) {
		return 1
	}
	return int(hits.Field("number").Uint(1)) //nolint:gosec // Envoy accepts at most 10^9
}

// limitBelowHits returns a limit of the rule that is lower than the number of hits sent. Such a limit denies every
// request, so that no limit of the rule is charged. It returns nil if there is none; a limit of 0 is meant to deny.
func (p filterPolicy) limitBelowHits(r *descriptors.Rule) *descriptors.Limit {
	if p.node.Field("limit").Exists() || slices.ContainsFunc(r.Limits, func(l *descriptors.Limit) bool { return l.Table != nil }) {
		return nil // other numbers apply
	}
	for _, l := range r.Limits {
		if most := l.Policy.Capacity(); !l.Policy.UsesLeases() && 0 < most && most < uint64(p.hitCount()) { //nolint:gosec // it is positive
			return l
		}
	}
	return nil
}

// checkActions checks for actions whose values are misleading. f is the filter that sends them, nil if unknown.
func (k *checker) checkActions(m *manager, f *filter, p filterPolicy) {
	if f != nil {
		k.checkSetters(m, f, p)
	}
	if key := p.node.Field("disable_key"); key.Text != "" {
		if why, never := k.config.runtime.disabled(elementEnabled(key.Text)); never {
			k.report(NoEffect, rules.Warning, key.Pos(), "%s, so the descriptor is never sent", why)
		}
	}
	for _, a := range p.actions {
		switch a.kind {
		case "request_headers":
			switch a.header() {
			case "x-forwarded-for":
				k.report(SameAddress, rules.Warning, a.node.Pos(), "x-forwarded-for contains the value that the client sent, followed by its address, so a client can use any number of counters: "+
					"send remote_address or masked_remote_address")
			case ":path":
				k.report(QueryInKey, rules.Warning, a.node.Pos(), ":path includes the query, so each query string has its own counter: "+
					"send a generic_key from a route for each path, or a header without the query")
			}
		case "remote_address", "masked_remote_address", "remote_address_match":
			k.checkAddress(m, a.node)
		}
	}
	k.checkContradictions(p)
}

// checkSetters checks that the filters which set the headers and metadata of a policy run before the rate limit filter.
func (k *checker) checkSetters(m *manager, f *filter, p filterPolicy) {
	for _, a := range p.actions {
		switch {
		case (a.kind == "metadata" || a.kind == "dynamic_metadata") && metadataSource(a.node) == "DYNAMIC":
			why := m.unsetMetadataReason(f, a.node.Field("metadata_key"), p.streamDone)
			switch {
			case why == "":
			case a.form.optional || a.node.Field("default_value").Exists():
				k.report(NoEffect, rules.Warning, a.node.Pos(), "the entry never has a value from the metadata: %s", why)
			default:
				k.report(NoEffect, rules.Error, a.node.Pos(), "the descriptor is never sent: %s", why)
			}
		case a.kind == "request_headers":
			if later := m.headerSetAfter(f, a.header()); later != nil {
				k.report(NoEffect, rules.Warning, a.node.Pos(), "the filter that sets the header %s, at %v, runs after the rate limit filter, which reads the client's value: put it before",
					rules.Shorten(a.header()), later.node.Pos())
			}
		}
	}
	if key := p.node.At("limit", "dynamic_metadata", "metadata_key"); key.Exists() {
		if why := m.unsetMetadataReason(f, key, p.streamDone); why != "" {
			k.report(NoEffect, rules.Warning, key.Pos(), "the limit is never sent: %s", why)
		}
	}
}

// checkContradictions checks that one request can have all entries of a policy: Envoy sends nothing if one is absent.
func (k *checker) checkContradictions(p filterPolicy) {
	type match struct {
		matcher uint64 // hash of the matchers
		expect  bool
	}
	seen := map[match]*tree.Node{}
	for _, a := range p.actions {
		matchers := a.node.Field(map[string]string{"header_value_match": "headers", "query_parameter_value_match": "query_parameters"}[a.kind])
		if !matchers.Exists() || a.node.Field("default_value").Exists() {
			continue
		}
		var h maphash.Hash
		h.SetSeed(tableSeed)
		matchers.Hash(&h)
		m := match{h.Sum64(), a.node.Field("expect_match").Bool(true)}
		if other := seen[match{m.matcher, !m.expect}]; other != nil {
			k.report(NoEffect, rules.Error, a.node.Pos(), "no request has both this entry and the one at %v, which requires the opposite, so the descriptor is never sent: use a separate list of actions for each", other.Pos())
		}
		seen[m] = a.node
	}
}

// checkAddress checks that the connection manager can determine the client's address.
func (k *checker) checkAddress(m *manager, at *tree.Node) {
	n := m.node
	if m.fragments || n.Field("use_remote_address").Bool(false) || n.Field("xff_num_trusted_hops").Uint(0) > 0 || n.Field("original_ip_detection_extensions").Exists() {
		return
	}
	k.report(SameAddress, rules.Warning, at.Pos(), "the address is the last one in x-forwarded-for, which any client can send, or else the peer's: "+
		"set use_remote_address: true at the edge, and xff_num_trusted_hops behind proxies (connection manager at %v)", n.Pos())
}
