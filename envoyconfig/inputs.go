package envoyconfig

import (
	"maps"
	"slices"
	"strings"
)

// Inputs returns the headers, in lower case and sorted, that routes and descriptors may
// depend on.
func (c *Config) Inputs() []string {
	names := map[string]bool{}
	c.walk(func(n *node) {
		for _, field := range []string{"header_name", "cluster_header"} {
			if name := n.field(field).str(); name != "" {
				names[strings.ToLower(name)] = true
			}
		}
		for i := range n.field("headers").elements() {
			if name := n.field("headers").nodes[i].field("name").str(); name != "" {
				names[strings.ToLower(name)] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(names))
}

// MetadataInputs returns what descriptors need of the dynamic metadata, as
// [Request.Metadata] names it.
func (c *Config) MetadataInputs() []string {
	names := map[string]bool{}
	c.walk(func(n *node) {
		if at := n.field("metadata_key"); at.there() && n.field("source").enum("DYNAMIC", "ROUTE_ENTRY") == "DYNAMIC" {
			names[metadataName(at)] = true
		}
	})
	return slices.Sorted(maps.Keys(names))
}

// walk calls see with all of the connection managers and route tables.
func (c *Config) walk(see func(*node)) {
	var below func(*node)
	below = func(n *node) {
		see(n)
		for i := range n.nodes {
			below(&n.nodes[i])
		}
	}
	for _, m := range c.managers {
		below(m.node)
		if m.table != nil {
			below(m.table.node)
		}
	}
}
