package envoyconfig

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// release is a version of Envoy without its patch: 40 is 1.40.
type release uint64

func (r release) String() string { return fmt.Sprintf("1.%d", uint64(r)) }

// releaseOf returns the release of the Envoy that describes itself in a node, or 0.
func releaseOf(n *node) release {
	version := n.at("user_agent_build_version", "version")
	if version.field("major_number").uint(0) != 1 {
		return 0
	}
	return release(version.field("minor_number").uint(0))
}

// newField is a field by its path, and the release that it came with.
type newField struct {
	path  []string
	since release
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

// newer warns of fields below n that the Envoy which wrote the dump does not have yet.
func (k *checker) newer(n *node, all []newField) {
	if k.config.release == 0 {
		return
	}
	for _, f := range all {
		at := n.at(f.path...)
		if f.path[0] == "actions" {
			at = inActions(n, f.path[1])
		}
		if at.there() && f.since > k.config.release {
			k.report(Version, rules.Warning, at.pos(), "%s came with Envoy %v, but the dump is of %v, which rejects it or, from a management server, ignores it: upgrade, or leave it out",
				strings.Join(f.path, "."), f.since, k.config.release)
		}
	}
}

// inActions returns the first action of a kind.
func inActions(n *node, name string) *node {
	actions := n.field("actions").elements()
	for i := range actions {
		if at := actions[i].field(name); at.there() {
			return at
		}
	}
	return &missing
}
