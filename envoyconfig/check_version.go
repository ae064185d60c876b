package envoyconfig

import (
	"slices"
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

// endCallFixes are the first patches of each minor version in which a failed end call cannot crash Envoy
// (CVE-2026-26330). Later releases are not affected, earlier ones have no fix.
var endCallFixes = map[uint64]uint64{34: 13, 35: 8, 36: 5, 37: 1}

// endCallsCrash reports whether a failed end call may crash the Envoys of m. known is false if the configuration does
// not tell their version.
func (k *checker) endCallsCrash(m *manager) (crash, known bool) {
	oldest, newest := m.chain.Releases()
	if k.config.release > 0 {
		oldest, newest = uint64(k.config.release), uint64(k.config.release)
	}
	fix, fixed := endCallFixes[oldest]
	switch {
	case oldest == 0:
		return false, false
	case oldest > 37:
		return false, true
	case newest < 34:
		return true, true
	default:
		return fixed && k.config.patch < fix, k.config.release > 0
	}
}

// checkEndCall reports the Envoys that may crash if a call at the end of a stream fails. This requires a call at its
// start by the same filter.
func (k *checker) checkEndCall(m *manager, sent []*checkedList) {
	if k.reportedEndCall {
		return
	}
	hasStart := func(c *checkedList) bool { return c.list.start != nil }
	i := slices.IndexFunc(sent, func(c *checkedList) bool { return c.list.end != nil })
	if i < 0 || !slices.ContainsFunc(sent, hasStart) {
		return
	}
	end := sent[i].list.end
	const text = "an Envoy before 1.37.1, 1.36.5, 1.35.8 or 1.34.13 may crash if the call for this element fails, as it does while sluice restarts or is unreachable (CVE-2026-26330): "
	switch crash, known := k.endCallsCrash(m); {
	case crash:
		k.reportedEndCall = true
		k.report(Version, rules.Warning, end.node.Pos(), text+"upgrade this Envoy")
	case !known:
		k.reportedEndCall = true
		k.report(Version, rules.Note, end.node.Pos(), text+"check the version")
	}
}
