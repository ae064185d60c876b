package envoyconfig

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Inputs returns the names of the headers that routes and descriptors may depend on, sorted and in lower case.
func (c *Config) Inputs() []string {
	names := map[string]bool{}
	c.walk(func(n *tree.Node) {
		for _, field := range []string{"header_name", "cluster_header"} {
			if name := n.Field(field).Text; name != "" {
				names[strings.ToLower(name)] = true
			}
		}
		for header := range n.Field("headers").Elements() {
			if name := header.Field("name").Text; name != "" {
				names[strings.ToLower(name)] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(names))
}

// MetadataInputs returns the keys of the dynamic metadata that descriptors read, in the form of [Request.Metadata].
func (c *Config) MetadataInputs() []string {
	names := map[string]bool{}
	c.walk(func(n *tree.Node) {
		if at := n.Field("metadata_key"); at.Exists() && metadataSource(n) == "DYNAMIC" {
			names[metadataName(at)] = true
		}
	})
	return slices.Sorted(maps.Keys(names))
}

// walk calls visit for each node of all connection managers and their route tables.
func (c *Config) walk(visit func(*tree.Node)) {
	for _, m := range c.managers {
		m.node.Walk(visit)
		if m.table != nil {
			m.table.node.Walk(visit)
		}
	}
}
