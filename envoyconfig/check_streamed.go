package envoyconfig

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

const sseToMetadata = filterTypes + "sse_to_metadata.v3.SseToMetadata"

// checkStreamedCost checks that a cost sent at the end of a stream is read from both kinds of responses: streams of
// events and complete ones. Clients of an LLM usually choose the kind.
func (k *checker) checkStreamedCost(m *manager, h *virtualHost, r *route, p filterPolicy) {
	if !p.streamDone || !p.own || r.node.At("match", "grpc").Exists() || m.hasUpstreamFilters && k.config.allClusters {
		return
	}
	for _, v := range p.readValues {
		k.checkStreamedValue(m, h, r, p, v)
	}
}

func (k *checker) checkStreamedValue(m *manager, h *virtualHost, r *route, p filterPolicy, v metadataValue) {
	readers := map[string]*filter{}
	for _, f := range m.filters {
		isReader := f.typeName == jsonToMetadata || f.typeName == sseToMetadata
		sets := false
		setsDefault := false
		for _, w := range f.responseWrites(v) {
			sets = sets || w.at.HasName("on_present")
			setsDefault = setsDefault || w.at.HasName("on_error") && w.at.Field("value").Uint(0) > 0
		}
		switch _, disabled := f.perRoute(m.table, h, r); {
		case disabled:
		case setsDefault, isReader && f.perRouteStrings[v.namespace],
			!isReader && f.writesTo(v.namespace) != neverWrites:
			return // its configuration for the route, or another filter, may set the cost
		case sets:
			readers[f.typeName] = f
		}
	}
	const text = "the filter at %v reads this cost from %s responses only, and %s ones charge nothing: add %s that also sets %s (sluice envoy snippet --llm prints both filters)"
	at := p.node.At("hits_addend", "format").Pos()
	switch json, sse := readers[jsonToMetadata], readers[sseToMetadata]; {
	case json != nil && sse == nil:
		k.report(StreamedCost, rules.Warning, at, text, json.node.Pos(), "complete", "streamed",
			"a filter sse_to_metadata", v.namespace+":"+v.key)
	case sse != nil && json == nil:
		k.report(StreamedCost, rules.Warning, at, text, sse.node.Pos(), "streamed", "complete",
			"a filter json_to_metadata", v.namespace+":"+v.key)
	}
}

// responseNamespace returns the namespace to which json_to_metadata or sse_to_metadata writes by
// default, "" for other filters.
func responseNamespace(f *filter) string {
	return map[string]string{
		jsonToMetadata: namespaces[jsonToMetadata], sseToMetadata: "envoy.content_parsers.json",
	}[f.typeName]
}
