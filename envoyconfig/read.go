package envoyconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// File is a file of configuration.
type File struct {
	Name    string
	Content []byte
}

// Read reads files that together form one configuration. The error joins all problems found.
func Read(files []File) (*Config, error) {
	c := &Config{
		tables: map[string]*table{}, clusters: map[string]*tree.Node{}, extensions: map[string]*tree.Node{},
		nodeCluster: &tree.Missing, listenerSource: &tree.Missing, allowances: rules.Allowances{}, sources: map[string][][]byte{},
	}
	var errs []error
	for _, f := range files {
		if err := c.readFile(f); err != nil {
			errs = append(errs, err)
		}
	}
	c.sources = nil
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	c.clustersFilter = c.clustersMayFilter()
	for _, m := range c.managers {
		c.resolveTable(m)
	}
	c.addUnusedTables()
	c.applyPatches()
	c.findOtherFilters()
	return c, nil
}

// readFile reads one file into c.
func (c *Config) readFile(f File) error {
	roots, err := tree.Read(f.Name, f.Content, c.allowances)
	if err != nil {
		return withTemplateHint(f, err)
	}
	c.sources[f.Name] = bytes.SplitAfter(f.Content, []byte{'\n'})
	found := false
	for i := range roots {
		c.findPlaceholders(&roots[i])
		c.roots = append(c.roots, &roots[i])
		found = c.readDocument(&roots[i]) || found
	}
	if !found {
		return unrecognisedError(f.Name, roots)
	}
	return nil
}

// withTemplateHint adds a hint if the unreadable file seems to be a template.
func withTemplateHint(f File, err error) error {
	if bytes.Contains(f.Content, []byte("{{")) {
		return fmt.Errorf("%w: this looks like a template: pass its rendered output, such as that of helm template",
			err)
	}
	return err
}

// unrecognisedError returns the error for a file that is not Envoy configuration.
func unrecognisedError(name string, roots []tree.Node) error {
	pos := rules.Pos{File: name, Line: 1, Col: 1}
	found := "nothing"
	if len(roots) > 0 {
		pos = roots[0].Pos()
		found = roots[0].Describe()
		if kind := roots[0].Field("kind").Text; kind != "" {
			found = "an object of kind " + rules.Shorten(kind)
		} else if roots[0].Kind == tree.Object && len(roots[0].Nodes) > 0 {
			found = "an object with " + rules.Shorten(roots[0].Nodes[0].Name)
		}
	}
	return fmt.Errorf("%v: found %s, which is not Envoy configuration: want a bootstrap (static_resources or dynamic_resources), "+
		"xDS resources (resources, or @type), routes, the output of /config_dump (configs), or an EnvoyFilter of Istio; "+
		"for objects of a control plane, pass the /config_dump of its proxy",
		pos, found)
}

// readDocument reads one document and reports whether it is configuration of Envoy.
func (c *Config) readDocument(n *tree.Node) (found bool) {
	kind := n.Field("kind").Text
	if inner := n.Field("resource"); inner.Exists() { // of an envoy.service.discovery.v3.Resource
		n = inner
	}
	switch {
	case kind == "EnvoyFilter":
		c.readEnvoyFilter(n)
	case kind == "EnvoyPatchPolicy":
		c.readPatchPolicy(n)
	case kind == "ConfigMap":
		return c.readConfigMap(n)
	case kind == "List": // the output of kubectl get -o yaml
		return c.readDocument(n.Field("items"))
	case n.Field("static_resources").Exists() || n.Field("dynamic_resources").Exists() ||
		n.At("admin", "address").Exists():
		c.readBootstrap(n)
	default:
		return c.readResource(n) || c.readFragment(n) || c.readInside(n)
	}
	return true
}

// findPlaceholders records the snippet placeholders that were not replaced.
func (c *Config) findPlaceholders(n *tree.Node) {
	n.Walk(func(n *tree.Node) {
		if n.Kind == tree.Text && strings.Contains(n.Text, placeholder) {
			c.placeholders = append(c.placeholders, n.Pos())
		}
	})
}

// resolveTable finds the routes and filter configurations that a manager gets by xDS.
func (c *Config) resolveTable(m *manager) {
	if m.fragments {
		// Fragments have no other routes.
	} else if inline := m.node.Field("route_config"); inline.Exists() {
		m.table = newTable(inline)
	} else if t := c.tables[m.node.At("rds", "route_config_name").Text]; t != nil {
		m.table = t
		t.used = true
	}
	c.resolveFilters(m)
	for _, u := range m.upgrades {
		if u.own != nil {
			u.own.table = m.table
			c.resolveFilters(u.own)
		}
	}
}

func (c *Config) resolveFilters(m *manager) {
	m.hasUpstreamFilters = c.clustersFilter || m.filtersUpstream()
	m.runtime = c.runtime
	m.clusters = c.clusters
	m.allClusters = c.allClusters
	for _, f := range m.filters {
		if f.node.Field("config_discovery").Exists() {
			if config := c.extensions[f.name]; config != nil {
				f.configure(config)
			}
		}
		if slices.Contains([]string{
			headerMutation, headerToMetadata, jsonToMetadata, setMetadata, luaCode, healthCheck,
		}, f.typeName) {
			f.perRouteStrings = m.table.collectPerRouteStrings(f.name)
		}
	}
}
