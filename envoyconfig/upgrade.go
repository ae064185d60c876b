package envoyconfig

import (
	"iter"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// upgrade is an element of upgrade_configs of a connection manager.
type upgrade struct {
	node *tree.Node
	// own is a connection manager with the filters for requests with this upgrade; nil if the usual filters apply.
	own *manager
}

func newUpgrades(n *tree.Node, listener string) (all []upgrade) {
	for u := range n.Field("upgrade_configs").Elements() {
		if filters := u.Field("filters"); len(filters.Nodes) > 0 {
			all = append(all, upgrade{u, &manager{node: n, listener: listener, filters: tree.Map(filters, newFilter)}})
			continue
		}
		all = append(all, upgrade{node: u})
	}
	return all
}

// filterChains returns the connection managers, and one for each upgrade that has rate limit filters of its own.
func (c *Config) filterChains() iter.Seq[*manager] {
	return func(yield func(*manager) bool) {
		for _, m := range c.managers {
			if !yield(m) {
				return
			}
			for _, u := range m.upgrades {
				if u.own != nil && u.own.hasLimits() && !yield(u.own) {
					return
				}
			}
		}
	}
}

// hasLimits reports whether requests can reach a rate limit or quota filter.
func (m *manager) hasLimits() bool {
	for _, u := range m.upgrades {
		if u.own != nil && u.own.hasLimits() {
			return true
		}
	}
	return len(m.rateLimitFilters())+len(m.quotaFilters()) > 0
}

// resolveUpgrade returns the connection manager with the filters for a request, which may request a protocol upgrade.
// rejected is the reason why no filters run, or why that is unknown. r may be nil.
func (m *manager) resolveUpgrade(x *exchange, r *route) (of *manager, rejected string) {
	protocol := strings.Join(x.clientValues("upgrade"), ",")
	if len(x.clientValues("upgrade")) == 0 || strings.EqualFold(protocol, "h2c") {
		return m, ""
	}
	if unknown := x.unloggedReason("connection"); unknown != "" {
		return m, UnknownPrefix + "upgrade: connection: " + unknown
	}
	if !hasToken(x.clientValues("connection"), "upgrade") {
		return m, ""
	}
	if strings.Contains(protocol, ",") || m.node.At("http_protocol_options", "ignore_http_11_upgrade").Exists() {
		return m, UnknownPrefix + "the request has upgrade: " + protocol
	}
	hasProtocol := func(n *tree.Node) bool { return strings.EqualFold(n.Field("upgrade_type").Text, protocol) }
	enabled := false
	found := upgrade{}
	for _, u := range m.upgrades {
		if hasProtocol(u.node) {
			found = u
			enabled = u.node.Field("enabled").Bool(true)
		}
	}
	if r != nil {
		for u := range r.action.Field("upgrade_configs").Elements() {
			if hasProtocol(u) {
				enabled = u.Field("enabled").Bool(true)
			}
		}
	}
	switch {
	case !enabled:
		return m, "no upgrade_configs allow upgrade: " + protocol + ", so Envoy responds with 403"
	case found.own != nil:
		return found.own, ""
	default:
		return m, ""
	}
}

// hasToken reports whether a comma-separated list contains the token, ignoring case.
func hasToken(lists []string, want string) bool {
	for _, list := range lists {
		for token := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.Trim(token, " \t"), want) {
				return true
			}
		}
	}
	return false
}
