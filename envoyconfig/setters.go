package envoyconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

const filterTypes = "envoy.extensions.filters.http."

// namespaces are those of filters that write dynamic metadata below a fixed one.
var namespaces = map[string]string{
	filterTypes + "jwt_authn.v3.JwtAuthentication": "envoy.filters.http.jwt_authn",
	filterTypes + "ext_authz.v3.ExtAuthz":          "envoy.filters.http.ext_authz",
	filterTypes + "rbac.v3.RBAC":                   "envoy.filters.http.rbac",
	api.RateLimit:                                  "envoy.filters.http.ratelimit",
}

// writesNoMetadata are filters that write no dynamic metadata.
var writesNoMetadata = []string{
	api.Router, api.LocalRateLimit, api.RateLimitQuota,
	filterTypes + "adaptive_concurrency.v3.AdaptiveConcurrency", filterTypes + "admission_control.v3.AdmissionControl",
	filterTypes + "bandwidth_limit.v3.BandwidthLimit", filterTypes + "buffer.v3.Buffer", filterTypes + "compressor.v3.Compressor",
	filterTypes + "cors.v3.Cors", filterTypes + "csrf.v3.CsrfPolicy", filterTypes + "decompressor.v3.Decompressor",
	filterTypes + "fault.v3.HTTPFault", filterTypes + "grpc_stats.v3.FilterConfig", filterTypes + "grpc_web.v3.GrpcWeb",
	filterTypes + "header_mutation.v3.HeaderMutation", filterTypes + "health_check.v3.HealthCheck",
}

// setter says which filters write a namespace of the dynamic metadata that the rate limit filter reads.
type setter struct {
	// before and after are the first ones that write it on either side of the rate limit filter.
	before, after *filter
	// maybe and maybeAfter say that another filter on that side may, such as one with code of its own.
	maybe, maybeAfter bool
}

// setter looks for the filters that write a namespace, from the place of a rate limit filter.
func (m *manager) setter(limiter *filter, namespace string) (s setter) {
	found, behind := &s.before, false
	for _, f := range m.filters {
		if f == limiter {
			found, behind = &s.after, true
			continue
		}
		switch fixed := namespaces[f.typeName]; {
		case fixed == namespace, names(f.config, namespace):
			if *found == nil {
				*found = f
			}
		case fixed == "" && !slices.Contains(writesNoMetadata, f.typeName) && !namesAll(f.typeName):
			s.maybe, s.maybeAfter = s.maybe || !behind, s.maybeAfter || behind
		}
	}
	return s
}

// namesAll reports whether the configuration of a filter names all namespaces that it writes.
func namesAll(typeName string) bool {
	return slices.Contains([]string{
		filterTypes + "header_to_metadata.v3.Config", filterTypes + "json_to_metadata.v3.JsonToMetadata", filterTypes + "set_metadata.v3.Config",
	}, typeName)
}

// names reports whether a filter's configuration names a namespace, as a text of its own or in quotes
// within code.
func names(config *tree.Node, namespace string) (found bool) {
	config.Each(func(n *tree.Node) {
		found = found || n.Kind == tree.Text && (n.Text == namespace || quotes(n.Text, namespace))
	})
	return found
}

// quotes reports whether code has a text in quotes.
func quotes(code, text string) bool {
	return strings.Contains(code, `"`+text+`"`) || strings.Contains(code, "'"+text+"'")
}

// metadataSet says what stands in the way of metadata that an action reads; empty if nothing does, as far
// as is known. late says that it is read at the end of the stream, when all filters have run.
func (m *manager) metadataSet(limiter *filter, key *tree.Node, late bool) string {
	namespace := key.Field("key").Text
	if m.fragments || namespace == "" {
		return ""
	}
	switch s := m.setter(limiter, namespace); {
	case s.before != nil:
		return m.payload(s.before, key)
	case s.maybe, late && (s.after != nil || s.maybeAfter):
		return ""
	case s.after != nil:
		return fmt.Sprintf("the filter that sets the metadata %s, at %v, runs after the rate limit filter: put it before", namespace, s.after.node.Pos())
	default:
		before := " before the rate limit filter"
		if late {
			before = ""
		}
		return fmt.Sprintf("no filter%s sets the metadata %s: add the one that does, or correct the key", before, namespace)
	}
}

// payload holds that a filter for JSON Web Tokens keeps what an action reads.
func (m *manager) payload(f *filter, key *tree.Node) string {
	path := metadataPath(key)
	if namespaces[f.typeName] != "envoy.filters.http.jwt_authn" || len(path) == 0 {
		return ""
	}
	var kept []string
	for provider := range f.config.Field("providers").Fields() {
		for _, field := range []string{"payload_in_metadata", "header_in_metadata", "failed_status_in_metadata"} {
			if name := provider.Field(field).Text; name != "" {
				kept = append(kept, name)
			}
		}
	}
	if slices.Contains(kept, path[0]) {
		return ""
	}
	return fmt.Sprintf("no provider of the filter at %v has payload_in_metadata: %s, so that the metadata is never set%s", f.node.Pos(), rules.Shorten(path[0]),
		rules.DidYouMean(rules.Nearest(path[0], kept)))
}

// headerSetAfter returns the filter that sets a header of the request only after the rate limit filter;
// nil if there is none, or another may set it before.
func (m *manager) headerSetAfter(limiter *filter, header string) *filter {
	behind := false
	for _, f := range m.filters {
		switch {
		case f == limiter:
			behind = true
		case setsHeader(f, header):
			if behind {
				return f
			}
			return nil
		}
	}
	return nil
}

// setsHeader reports whether a filter sets a header of the request: header_mutation, or code of lua that
// has its name in quotes and adds or replaces headers.
func setsHeader(f *filter, header string) (found bool) {
	switch f.typeName {
	case filterTypes + "header_mutation.v3.HeaderMutation":
		for mutation := range f.config.At("mutations", "request_mutations").Elements() {
			found = found || strings.EqualFold(mutation.At("append", "header", "key").Text, header)
		}
	case filterTypes + "lua.v3.Lua":
		f.config.Each(func(n *tree.Node) {
			code := strings.ToLower(n.Text)
			found = found || n.Kind == tree.Text && quotes(code, header) && strings.Contains(code, "envoy_on_request") && (strings.Contains(code, ":add(") || strings.Contains(code, ":replace("))
		})
	}
	return found
}

// setter names the filter that sets the dynamic metadata at a key. none says why no filter does.
func (x *exchange) setter(key *tree.Node) (by, none string) {
	if x.of == nil {
		return "another filter", ""
	}
	if none = x.of.metadataSet(x.limiter, key, x.late); none != "" {
		return "", none
	}
	s := x.of.setter(x.limiter, key.Field("key").Text)
	if s.before == nil && x.late {
		s.before = s.after
	}
	if s.before != nil {
		return "the filter " + s.before.name, ""
	}
	return "another filter", ""
}
