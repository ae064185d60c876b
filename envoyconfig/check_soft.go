package envoyconfig

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// DefaultSoftHeader is the name that [Config].SoftHeader has by default.
const DefaultSoftHeader = "x-ratelimit-soft"

// softKey is the key in the metadata with the name of a soft limit.
const softKey = "soft"

const (
	setFilterState      = filterTypes + "set_filter_state.v3.Config"
	earlyHeaderMutation = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
)

// checkSoft checks the routes that match what sluice reports of soft limits.
func (k *checker) checkSoft(m *manager, f *filter) {
	if m.table == nil || len(k.set.Reporting(f.domain())) == 0 || !k.isFirst(m, "soft "+f.name) {
		return
	}
	header := strings.ToLower(cmp.Or(k.config.SoftHeader, DefaultSoftHeader))
	for _, level := range m.table.levels() {
		match := level.Field("match")
		for n := range match.Field("headers").Elements() {
			if name := n.Field("name"); strings.EqualFold(name.Text, header) && !m.strips(header) {
				k.report(Soft, rules.Error,
					name.Pos(), "clients can choose this route, since they can send the header %s: "+
						"match the metadata instead, or remove the header from requests with "+
						"early_header_mutation_extensions or, for clients outside, internal_only_headers", header)
			}
		}
		for n := range match.Field("dynamic_metadata").Elements() {
			isSoft := n.Field("filter").Text == f.namespace() && slices.Equal(metadataPath(n), []string{softKey})
			if isSoft && !m.fragments && !m.selectsAgain(f) {
				k.report(Soft, rules.Warning, n.Pos(), "no request takes this route: Envoy selects the route before it calls sluice, "+
					"and no filter after the rate limit filter makes it select again: add set_filter_state with "+
					"clear_route_cache: true")
			}
		}
	}
}

// strips reports whether the manager removes a header from the requests of clients, or may do so,
// before it selects a route.
func (m *manager) strips(header string) bool {
	if m.table.internalOnly(header).Exists() && m.node.Field("use_remote_address").Bool(false) {
		return true
	}
	for n := range m.node.Field("early_header_mutation_extensions").Elements() {
		typeName, config := n.Field("typed_config").Typed()
		if typeName != earlyHeaderMutation {
			return true // it runs code of its own
		}
		if removesHeader(config.Field("mutations"), header) {
			return true
		}
	}
	return false
}

// selectsAgain reports whether a filter after f makes Envoy select the route again, or may do so.
func (m *manager) selectsAgain(f *filter) bool {
	return slices.ContainsFunc(m.after(f),
		func(later *filter) bool { return !later.disabled && later.clearsRouteCache() })
}

// clearsRouteCache reports whether a filter makes Envoy select the route again, or may do so.
func (f *filter) clearsRouteCache() (clears bool) {
	switch f.typeName {
	case setFilterState, jwtAuthn, filterTypes + "ext_authz.v3.ExtAuthz":
		f.config.Walk(func(n *tree.Node) { clears = clears || n.HasName("clear_route_cache") && n.Bool(false) })
		return clears
	case setMetadata, jsonToMetadata, api.RateLimit, api.RateLimitQuota, filterTypes + "rbac.v3.RBAC":
		return false
	default:
		return !slices.Contains(writesNoMetadata, f.typeName) // such as Lua
	}
}
