package envoyconfig

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// mostBytes is the largest file that is read.
const mostBytes = 1 << 30

// File is a file of configuration.
type File struct {
	Name    string
	Content []byte
}

// file is one whose nodes stand in a Config.
type file struct{ name string }

// Config is what files say about rate limits. It does not change once read.
type Config struct {
	managers []*manager
	// tables are the route configurations that have names, for those who get them by RDS.
	tables   map[string]*table
	clusters map[string]*node
	// extensions are the configurations of filters by ECDS, by name.
	extensions map[string]*node
	// patched is what parts of configurations say, such as EnvoyFilters; nil without any.
	patched *manager
	// allowances are the warnings that comments acknowledge.
	allowances rules.Allowances
	// release is that of the Envoy which wrote a dump; 0 where no file is one.
	release release
	// open are the places of what a snippet leaves open.
	open []rules.Pos
	// nodeCluster is node.cluster of a bootstrap, or missing.
	nodeCluster *node
	// formatted says that the runtime has Envoy take some descriptor values for format
	// strings; see [generic].
	formatted bool
	// wrong is what is not as Envoy's API has it; a Config that is returned has none.
	wrong []error
	// strange are fields that the newest Envoy which is known here does not have, deprecated those that
	// it rejects unless the runtime allows them.
	strange, deprecated []error
	allowsDeprecated    bool
}

// Read reads files, which together are one configuration. The error says all that is wrong
// with them.
func Read(files []File) (*Config, error) {
	c := &Config{
		tables: map[string]*table{}, clusters: map[string]*node{}, extensions: map[string]*node{},
		nodeCluster: &missing, allowances: rules.Allowances{},
	}
	for _, f := range files {
		roots, err := parse(f, c.allowances)
		if err != nil {
			c.wrong = append(c.wrong, err)
			continue
		}
		found := false
		for i := range roots {
			c.placeholders(&roots[i])
			found = c.document(&roots[i]) || found
		}
		if !found {
			c.wrong = append(c.wrong, unrecognised(f.Name, roots))
		}
	}
	c.concludeFields()
	if len(c.wrong) > 0 {
		return nil, errors.Join(c.wrong...)
	}
	for _, m := range c.managers {
		m.resolve(c)
	}
	return c, nil
}

// parse returns the values that stand in a file, and adds the warnings that it acknowledges.
func parse(f File, allowances rules.Allowances) ([]node, error) {
	if len(f.Content) > mostBytes {
		return nil, fmt.Errorf("%s: larger than %d MiB", f.Name, mostBytes>>20)
	}
	if !utf8.Valid(f.Content) {
		return nil, fmt.Errorf("%s: not valid UTF-8", f.Name)
	}
	in := string(f.Content)
	from := &file{f.Name}
	if n, err := parseJSON(from, in); err == nil {
		return []node{n}, nil // JSON has no comments
	}
	maps.Copy(allowances, rules.FindAllowances(f.Name, f.Content))
	roots, err := parseYAML(from, in)
	if err != nil {
		return nil, yamlError(f.Name, err)
	}
	return roots, nil
}

// unrecognised says that a file is no configuration of Envoy.
func unrecognised(name string, roots []node) error {
	pos := rules.Pos{File: name, Line: 1, Col: 1}
	found := "nothing"
	if len(roots) > 0 {
		pos, found = roots[0].pos(), roots[0].shown()
		var names []string
		for _, f := range roots[0].fields()[:min(5, len(roots[0].fields()))] {
			names = append(names, rules.Shorten(f.name))
		}
		if len(names) > 0 {
			found = "an object with " + strings.Join(names, ", ")
		}
	}
	return fmt.Errorf("%v: found %s, which is no configuration of Envoy: want a bootstrap (static_resources or dynamic_resources), "+
		"xDS resources (resources, or @type), the answer of /config_dump (configs), or Istio's (kind: EnvoyFilter)", pos, found)
}

// document takes in what one value of a file holds, and reports whether it is a
// configuration of Envoy.
func (c *Config) document(n *node) bool {
	switch {
	case n.kind == list: // of resources, as istioctl prints them
		found := false
		for i := range n.nodes {
			found = c.document(&n.nodes[i]) || found
		}
		return found
	case n.field("http_filters").kind == list && n.field("rate_limits").kind == list:
		c.snippet(n)
		return true
	case n.field("kind").str() == "EnvoyFilter":
		c.envoyFilter(n)
		return true
	case n.field("kind").str() == "List": // of kubectl get -o yaml
		return c.document(n.field("items"))
	case n.field("static_resources").there() || n.field("dynamic_resources").there():
		c.whole(n)
		return true
	case n.field("configs").kind == list:
		return c.dump(n)
	case n.field("resources").kind == list:
		c.expect(n, responseMessage)
		return c.resources(n.field("resources"))
	default:
		return c.resource(n)
	}
}

// placeholders finds what a snippet leaves open.
func (c *Config) placeholders(n *node) {
	if n.kind == text && strings.Contains(n.text, placeholder) {
		c.open = append(c.open, n.pos())
	}
	for i := range n.nodes {
		c.placeholders(&n.nodes[i])
	}
}

// whole takes in a bootstrap.
func (c *Config) whole(n *node) {
	c.expect(n, bootstrapMessage)
	c.bootstrap(n)
	for _, part := range []string{"listeners", "clusters"} {
		c.resources(n.at("static_resources", part))
	}
}

// bootstrap takes in what only a bootstrap says.
func (c *Config) bootstrap(n *node) {
	if cluster := n.at("node", "cluster"); cluster.there() {
		c.nodeCluster = cluster
	}
	for _, layer := range n.at("layered_runtime", "layers").elements() {
		for _, f := range layer.field("static_layer").fields() {
			if f.name == formatterFeature && f.yes(false) {
				c.formatted = true
			}
			if strings.HasPrefix(f.name, "envoy.deprecated_features:") || f.name == "envoy.features.enable_all_deprecated_features" {
				c.allowsDeprecated = c.allowsDeprecated || f.yes(false)
			}
		}
	}
}

// dump takes in the answer of /config_dump. Static route configurations are left out: they
// stand in the listeners too. So are the listeners and clusters of the bootstrap.
func (c *Config) dump(n *node) bool {
	c.expect(n, dumpMessage)
	found := false
	for i := range n.field("configs").elements() {
		part := &n.field("configs").nodes[i]
		name, ok := strings.CutPrefix(part.typeName(), "envoy.admin.v3.")
		if !ok {
			continue
		}
		found = true
		c.expect(part, dumped[name])
		switch name {
		case "BootstrapConfigDump":
			c.bootstrap(part.field("bootstrap"))
			c.release = releaseOf(part.at("bootstrap", "node"))
		case "ListenersConfigDump":
			c.wrapped(part.field("static_listeners"), "listener")
			for _, l := range part.field("dynamic_listeners").elements() {
				c.resource(l.at("active_state", "listener"))
			}
		case "ClustersConfigDump":
			c.wrapped(part.field("static_clusters"), "cluster")
			c.wrapped(part.field("dynamic_active_clusters"), "cluster")
		case "RoutesConfigDump":
			c.wrapped(part.field("dynamic_route_configs"), "route_config")
		case "EcdsConfigDump":
			c.wrapped(part.field("ecds_filters"), "ecds_filter")
		default: // secrets, endpoints: of no account here
		}
	}
	return found
}

func (c *Config) wrapped(l *node, name string) {
	for i := range l.elements() {
		c.resource(l.nodes[i].field(name))
	}
}

func (c *Config) resources(l *node) bool {
	found := false
	for i := range l.elements() {
		r := &l.nodes[i]
		if inner := r.field("resource"); inner.there() { // envoy.service.discovery.v3.Resource
			r = inner
		}
		found = c.resource(r) || found
	}
	return found
}

// resource takes in a resource of xDS, which may lack its @type: then its fields tell.
func (c *Config) resource(n *node) bool {
	name := n.typeName()
	switch {
	case name == "envoy.config.listener.v3.Listener",
		name == "" && (n.field("filter_chains").there() || n.field("default_filter_chain").there() || n.field("api_listener").there()):
		c.expect(n, listenerMessage)
		c.listener(n)
	case name == "envoy.config.route.v3.RouteConfiguration", name == "" && n.field("virtual_hosts").there():
		c.expect(n, tableMessage)
		c.tables[n.field("name").str()] = newTable(n)
	case name == "envoy.config.cluster.v3.Cluster",
		name == "" && (n.field("load_assignment").there() || n.field("eds_cluster_config").there() || n.field("lb_policy").there()):
		c.expect(n, clusterMessage)
		c.clusters[n.field("name").str()] = n
	case name == "envoy.config.core.v3.TypedExtensionConfig":
		c.expect(n, extension)
		c.extensions[n.field("name").str()] = n.field("typed_config")
	case name == "envoy.config.bootstrap.v3.Bootstrap":
		c.whole(n)
	default:
		return false
	}
	return true
}
