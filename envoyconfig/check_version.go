package envoyconfig

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// endCallFixes are the first patches of each minor version in which a failed end call cannot crash Envoy
// (CVE-2026-26330). Later releases are not affected, earlier ones have no fix.
var endCallFixes = map[uint64]uint64{34: 13, 35: 8, 36: 5, 37: 1}

// readVersion reads the version of the Envoy that wrote a dump from its node.
func (c *Config) readVersion(node *tree.Node) {
	version := node.At("user_agent_build_version", "version")
	if version.Field("major_number").Uint(0) == 1 {
		c.release = version.Field("minor_number").Uint(0)
		c.patch = version.Field("patch").Uint(0)
	}
}

// endCallsCrash reports whether a failed end call may crash the Envoy that wrote the dump.
func (k *checker) endCallsCrash() bool {
	fix, fixed := endCallFixes[k.config.release]
	return k.config.release < 34 || fixed && k.config.patch < fix
}

// checkEndCall reports the Envoys that may crash if a call at the end of a stream fails. This requires a call at its
// start by the same filter.
func (k *checker) checkEndCall(sent []*checkedList) {
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
	switch {
	case k.config.release == 0:
		k.reportedEndCall = true
		k.report(Version, rules.Note, end.node.Pos(), text+"check the version")
	case k.endCallsCrash():
		k.reportedEndCall = true
		k.report(Version, rules.Warning, end.node.Pos(), text+"upgrade this Envoy")
	}
}
