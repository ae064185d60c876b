package envoyconfig

import (
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

const filterTypes = "envoy.extensions.filters.http."

// namespaces maps filters to the metadata namespace that they write to, always or by default.
var namespaces = map[string]string{
	jwtAuthn:                     "envoy.filters.http.jwt_authn",
	extAuthz:                     "envoy.filters.http.ext_authz",
	filterTypes + "rbac.v3.RBAC": "envoy.filters.http.rbac",
	api.RateLimit:                "envoy.filters.http.ratelimit",
	api.RateLimitQuota:           "envoy.extensions.http_filters.rate_limit_quota.bucket",
	headerToMetadata:             "envoy.filters.http.header_to_metadata",
	jsonToMetadata:               "envoy.filters.http.json_to_metadata",
}

const (
	extAuthz         = filterTypes + "ext_authz.v3.ExtAuthz"
	healthCheck      = filterTypes + "health_check.v3.HealthCheck"
	jwtAuthn         = filterTypes + "jwt_authn.v3.JwtAuthentication"
	headerToMetadata = filterTypes + "header_to_metadata.v3.Config"
	jsonToMetadata   = filterTypes + "json_to_metadata.v3.JsonToMetadata"
	setMetadata      = filterTypes + "set_metadata.v3.Config"
	withMatcher      = "envoy.extensions.common.matching.v3.ExtensionWithMatcher"
	headerMutation   = filterTypes + "header_mutation.v3.HeaderMutation"
	luaCode          = filterTypes + "lua.v3.Lua"
)

// writesNoMetadata are the filters that write no dynamic metadata.
var writesNoMetadata = []string{
	api.Router, api.LocalRateLimit,
	filterTypes + "adaptive_concurrency.v3.AdaptiveConcurrency", filterTypes + "admission_control.v3.AdmissionControl",
	filterTypes + "bandwidth_limit.v3.BandwidthLimit", filterTypes + "buffer.v3.Buffer", filterTypes + "compressor.v3.Compressor",
	filterTypes + "cors.v3.Cors", filterTypes + "csrf.v3.CsrfPolicy", filterTypes + "decompressor.v3.Decompressor",
	filterTypes + "grpc_stats.v3.FilterConfig", filterTypes + "grpc_web.v3.GrpcWeb",
	headerMutation, healthCheck,
}

// writeCertainty is the certainty with which a filter writes a namespace of the dynamic metadata.
type writeCertainty int

const (
	neverWrites writeCertainty = iota
	mayWrite
	writes
)

// writesTo returns whether the filter writes a namespace, as measured on Envoy 1.40.
func (f *filter) writesTo(namespace string) writeCertainty {
	fixed := namespaces[f.typeName] == namespace
	switch f.typeName {
	case api.RateLimit:
		if own := f.config.Field("metadata_namespace").Text; own != "" {
			fixed = own == namespace
		}
	case headerToMetadata, jsonToMetadata, setMetadata:
		switch {
		case mentions(f.config, namespace) || fixed:
			return writes
		case f.perRouteStrings[namespace]:
			return mayWrite
		}
		return neverWrites
	case luaCode:
		switch all, complete := luaWrites(f.config, namespace); {
		case len(all) > 0:
			return writes
		case complete && len(f.perRouteStrings) == 0:
			return neverWrites
		}
		return mayWrite
	case filterTypes + "fault.v3.HTTPFault":
		if f.name == namespace && f.config.Field("filter_metadata").Exists() {
			return writes
		}
		return neverWrites
	}
	switch {
	case fixed:
		return writes
	case namespaces[f.typeName] != "" || slices.Contains(writesNoMetadata, f.typeName):
		return neverWrites
	default:
		return mayWrite
	}
}

// findSetter returns the first filter that writes a namespace. maybe is true if another one may write it, such as one that
// runs custom code.
func findSetter(filters []*filter, namespace string) (found *filter, maybe bool) {
	for _, f := range filters {
		certainty := f.writesTo(namespace)
		if certainty == writes && found == nil {
			found = f
		}
		maybe = maybe || certainty == mayWrite
	}
	return found, maybe
}

// clustersMayFilter reports whether clusters may have filters that run after the router. The files may not contain all
// clusters.
func (c *Config) clustersMayFilter() bool {
	for _, n := range c.clusters {
		if len(protocolOptions(n).Field("http_filters").Nodes) > 0 {
			return true
		}
	}
	return !c.allClusters
}

// filtersUpstream reports whether the router has filters of its own.
func (m *manager) filtersUpstream() bool {
	return slices.ContainsFunc(m.filters, func(f *filter) bool {
		return f.typeName == api.Router && f.config.Field("upstream_http_filters").Exists()
	})
}

// collectPerRouteStrings returns all strings in the per-route configurations of a filter, which may be namespaces.
func (t *table) collectPerRouteStrings(filter string) map[string]bool {
	if t == nil {
		return nil
	}
	if names, known := t.perRouteStrings[filter]; known {
		return names
	}
	names := map[string]bool{}
	t.node.Walk(func(n *tree.Node) {
		if n.Name != filter {
			return
		}
		n.Walk(func(n *tree.Node) {
			if n.Kind == tree.Text {
				names[n.Text] = true
			}
		})
	})
	if t.perRouteStrings == nil {
		t.perRouteStrings = map[string]map[string]bool{}
	}
	t.perRouteStrings[filter] = names
	return names
}

// mentions reports whether a string of the configuration equals the namespace.
func mentions(config *tree.Node, namespace string) (found bool) {
	config.Walk(func(n *tree.Node) { found = found || n.Kind == tree.Text && n.Text == namespace })
	return found
}

var (
	// luaSetCall matches a Lua call that sets dynamic metadata: set("namespace", "key".
	luaSetCall = regexp.MustCompile(`:set\(\s*["']([^"']*)["']\s*,\s*["']([^"']*)["']`)
	// luaSet matches each word that may be such a call, or that loads other code.
	luaSet = regexp.MustCompile(`\b(?:set|require|load|loadstring|loadfile|dofile)\b`)
)

// luaWrites returns the keys of a namespace that Lua code sets. complete is false if it may set others.
func luaWrites(config *tree.Node, namespace string) (all []keyWrite, complete bool) {
	complete = true
	config.Walk(func(n *tree.Node) {
		if n.Kind != tree.Text {
			return
		}
		calls := luaSetCall.FindAllStringSubmatch(n.Text, -1)
		complete = complete && len(calls) == len(luaSet.FindAllString(n.Text, -1)) &&
			!slices.Contains([]string{"filename", "inline_bytes", "environment_variable"}, tree.SnakeCase(n.Name))
		if !strings.Contains(n.Text, "envoy_on_re") {
			return // Envoy calls only envoy_on_request and envoy_on_response
		}
		for _, call := range calls {
			if call[1] == namespace {
				all = append(all, keyWrite{
					key: call[2], value: &tree.Missing, atResponse: !strings.Contains(n.Text, "envoy_on_request"),
				})
			}
		}
	})
	return all, complete
}

// containsQuoted reports whether the code contains the text in quotes.
func containsQuoted(code, text string) bool {
	return strings.Contains(code, `"`+text+`"`) || strings.Contains(code, "'"+text+"'")
}

// headerSetAfter returns the first filter after the rate limit filter that sets a request header; nil if there is none,
// or if an earlier filter also sets the header.
func (m *manager) headerSetAfter(limiter *filter, header string) *filter {
	sets := func(f *filter) bool { return setsHeader(f, header) }
	after := m.after(limiter)
	if i := slices.IndexFunc(after, sets); i >= 0 && !slices.ContainsFunc(m.before(limiter), sets) {
		return after[i]
	}
	return nil
}

// setsHeader reports whether a filter sets a request header: header_mutation, or Lua code that contains the quoted
// name and adds or replaces headers.
func setsHeader(f *filter, header string) (found bool) {
	switch f.typeName {
	case headerMutation:
		for mutation := range f.config.At("mutations", "request_mutations").Elements() {
			found = found || strings.EqualFold(mutation.At("append", "header", "key").Text, header)
		}
	case luaCode:
		f.config.Walk(func(n *tree.Node) {
			code := strings.ToLower(n.Text)
			found = found || n.Kind == tree.Text && containsQuoted(code, header) && strings.Contains(code,
				"envoy_on_request") && (strings.Contains(code, ":add(") || strings.Contains(code, ":replace("))
		})
	}
	return found
}
