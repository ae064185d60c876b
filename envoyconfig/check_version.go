package envoyconfig

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// newField is a field by its path, and the release that it came with.
type newField struct {
	path  []string
	since api.Release
}

// The fields that 1.36 does not have, of the filter and of an element of rate_limits.
// docs/compatibility.md says how they were tried.
var (
	newFilterFields = []newField{
		{[]string{"enable_retry_after_header"}, 40},
		{[]string{"metadata_namespace"}, 39},
	}
	newPolicyFields = []newField{
		{[]string{"limit", "rate_limit"}, 39},
		{[]string{"actions", "remote_address_match"}, 38},
		{[]string{"hits_addend", "is_negative_hits"}, 38},
		{[]string{"x_ratelimit_option"}, 38},
	}
)

// checkNewFields warns of fields below n that the Envoy which wrote the dump does not have yet.
func (k *checker) checkNewFields(n *tree.Node, all []newField) {
	if k.config.release == 0 {
		return
	}
	for _, f := range all {
		at := n.At(f.path...)
		if f.path[0] == "actions" {
			at = firstAction(n, f.path[1])
		}
		if at.Exists() && f.since > k.config.release {
			k.report(Version, rules.Warning, at.Pos(), "%s came with Envoy %v, but the dump is of %v, which rejects it or, from a management server, ignores it: upgrade, or leave it out",
				strings.Join(f.path, "."), f.since, k.config.release)
		}
	}
}

// firstAction returns the first action of a kind.
func firstAction(n *tree.Node, name string) *tree.Node {
	for action := range n.Field("actions").Elements() {
		if at := action.Field(name); at.Exists() {
			return at
		}
	}
	return &tree.Missing
}
