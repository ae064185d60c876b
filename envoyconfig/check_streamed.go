package envoyconfig

import (
	"cmp"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

const sseToMetadata = filterTypes + "sse_to_metadata.v3.SseToMetadata"

// checkStreamedCost checks that a cost sent at the end of a stream is read from both kinds of responses: streams of
// events and complete ones. Clients of an LLM usually choose the kind.
func (k *checker) checkStreamedCost(m *manager, h *virtualHost, r *route, p filterPolicy) {
	command, argument := commandOf(p.policy)
	if !p.streamDone || !p.own || command != "DYNAMIC_METADATA" || r.node.At("match", "grpc").Exists() || m.hasUpstreamFilters && k.config.allClusters {
		return
	}
	path := strings.Split(argument+":", ":")
	namespace, key := path[0], path[1]
	readers := map[string]*filter{}
	for _, f := range m.filters {
		isReader := f.typeName == jsonToMetadata || f.typeName == sseToMetadata
		sets, setsDefault := f.setsFromResponse(namespace, key)
		switch _, disabled := f.perRoute(m.table, h, r); {
		case disabled:
		case setsDefault, isReader && f.perRouteStrings[namespace], !isReader && f.writesTo(namespace) != neverWrites:
			return // its configuration for the route, or another filter, may set the cost
		case sets:
			readers[f.typeName] = f
		}
	}
	const text = "the filter at %v reads this cost from %s responses only, and %s ones charge nothing: add %s that also sets %s (sluice envoy snippet --llm prints both filters)"
	at := p.node.At("hits_addend", "format").Pos()
	switch json, sse := readers[jsonToMetadata], readers[sseToMetadata]; {
	case json != nil && sse == nil:
		k.report(StreamedCost, rules.Warning, at, text, json.node.Pos(), "complete", "streamed", "a filter sse_to_metadata", argument)
	case sse != nil && json == nil:
		k.report(StreamedCost, rules.Warning, at, text, sse.node.Pos(), "streamed", "complete", "a filter json_to_metadata", argument)
	}
}

// setsFromResponse reports whether json_to_metadata or sse_to_metadata sets a value that it reads from responses, and
// whether it sets another value for responses that it cannot read.
func (f *filter) setsFromResponse(namespace, key string) (sets, setsDefault bool) {
	byDefault := map[string]string{jsonToMetadata: namespaces[jsonToMetadata], sseToMetadata: "envoy.content_parsers.json"}[f.typeName]
	f.config.Field("response_rules").Walk(func(n *tree.Node) {
		if byDefault != "" && n.Field("key").Text == key && cmp.Or(n.Field("metadata_namespace").Text, byDefault) == namespace {
			sets = sets || n.HasName("on_present")
			setsDefault = setsDefault || n.HasName("on_error") && n.Field("value").Uint(0) > 0
		}
	})
	return sets, setsDefault
}
