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

// upgradeReason returns why the filters for a request are unknown: if it asks for another protocol, they depend on
// upgrade_configs. It is empty for other requests.
func (x *exchange) upgradeReason() string {
	if values := x.clientValues("upgrade"); len(values) > 0 && !strings.EqualFold(values[0], "h2c") {
		return UnknownPrefix + "the request has upgrade: " + values[0]
	}
	return ""
}
