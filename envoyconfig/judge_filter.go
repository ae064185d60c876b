package envoyconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// judge finds a filter of a connection manager that Envoy rejects: its @type says which one it is, so that each needs
// typed_config, or config_discovery, which brings that later. One that is_optional may lack both, and is left out then.
// Being disabled excuses nothing. Earlier Envoys knew filters by their names: what the dump of a running one has, it took.
func (f *filter) judge(j *api.Judge) {
	wrong := func(format string, args ...any) { j.Wrong = append(j.Wrong, fmt.Errorf(format, args...)) }
	named := slices.Contains([]string{"envoy.rate_limit", "envoy.filters.http.ratelimit"}, f.name)
	const misspelt = 3 // letters
	distance := rules.EditDistance(f.typeName, api.RateLimit)
	typed := f.node.Field("typed_config")
	switch {
	case f.node.Field("config_discovery").There():
	case f.typeName == "" && (j.Running || f.node.Field("is_optional").Yes(false) || typed.There() && typed.Kind != tree.Object): // the latter is an error already
	case f.typeName == "" && named:
		wrong(`%v: Envoy rejects the filter without typed_config: add typed_config: { "@type": type.googleapis.com/%s, domain: ... }`, f.node.Pos(), api.RateLimit)
	case f.typeName == "":
		wrong(`%v: Envoy rejects the filter %s without typed_config, whose "@type" says which filter it is`, f.node.Pos(), rules.Shorten(f.name))
	case named && slices.Contains([]string{api.NetworkRateLimit, api.RateLimitPerRoute}, f.typeName), 0 < distance && distance <= misspelt,
		(strings.HasPrefix(f.typeName, filterTypes+"ratelimit.") || strings.HasPrefix(f.typeName, filterTypes+"rate_limit.")) && f.typeName != api.RateLimit && !f.node.Field("is_optional").Yes(false):
		wrong("%v: Envoy has no HTTP filter %s, and rejects it: write type.googleapis.com/%s", f.config.Field("@type").Pos(), rules.Shorten(f.typeName), api.RateLimit)
	}
}

// comesLater reports whether the configuration of a rate limit filter is in no file, but comes by config_discovery.
func (f *filter) comesLater() bool {
	for n := range f.node.At("config_discovery", "type_urls").Elements() {
		if f.typeName == "" && strings.HasSuffix(n.Text, "/"+api.RateLimit) {
			return true
		}
	}
	return false
}
