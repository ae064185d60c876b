package envoyconfig

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// newField is the path of a field and the release that introduced it.
type newField struct {
	path  []string
	since api.Release
}

// newFilterFields and newPolicyFields are the fields of the filter and of its policies that Envoy 1.36 does not have.
// See docs/compatibility.md.
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

// checkNewFields warns about fields below n that are newer than the Envoy that wrote the dump.
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
			k.report(Version, rules.Warning, at.Pos(), "%s was added in Envoy %v, but the dump is of %v, which rejects it or, from a management server, ignores it: upgrade, or remove it",
				strings.Join(f.path, "."), f.since, k.config.release)
		}
	}
}

// firstAction returns the first action with the given name, or missing.
func firstAction(n *tree.Node, name string) *tree.Node {
	for action := range n.Field("actions").Elements() {
		if at := action.Field(name); at.Exists() {
			return at
		}
	}
	return &tree.Missing
}
