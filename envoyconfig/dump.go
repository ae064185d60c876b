package envoyconfig

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// dumpedResources are the paths of resources in the output of /config_dump: a list, and the path to the resource in
// each element. Static route configurations are skipped because the listeners contain them; so are the listeners and
// clusters of the bootstrap, and unrelated resources such as secrets and endpoints.
var dumpedResources = []struct {
	part, list string
	path       []string
}{
	{"ListenersConfigDump", "static_listeners", []string{"listener"}},
	{"ListenersConfigDump", "dynamic_listeners", []string{"active_state", "listener"}},
	{"ClustersConfigDump", "static_clusters", []string{"cluster"}},
	{"ClustersConfigDump", "dynamic_active_clusters", []string{"cluster"}},
	{"RoutesConfigDump", "dynamic_route_configs", []string{"route_config"}},
	{"EcdsConfigDump", "ecds_filters", []string{"ecds_filter"}},
}

// readDump reads the output of /config_dump.
func (c *Config) readDump(n *tree.Node) (found bool) {
	for part := range n.Field("configs").Elements() {
		name, ok := strings.CutPrefix(part.TypeName(), api.DumpPart)
		if !ok {
			continue
		}
		found = true
		switch name {
		case "BootstrapConfigDump":
			c.readProcess(part.Field("bootstrap"))
			c.release, c.patch = api.VersionOf(part.At("bootstrap", "node"))
		case "ListenersConfigDump":
			c.allListeners = true
		case "ClustersConfigDump":
			c.allClusters = true
		}
		c.readDumpPart(part, name)
	}
	return found
}

// readDumpPart reads the resources of a part of a dump and reports whether there are any. Without a name, the fields
// identify the part.
func (c *Config) readDumpPart(part *tree.Node, name string) (found bool) {
	c.isDump = true // a running Envoy has accepted it
	defer func() { c.isDump = false }()
	for _, d := range dumpedResources {
		if name != "" && d.part != name {
			continue
		}
		for n := range part.Field(d.list).Elements() {
			found = c.readResource(n.At(d.path...)) || found
		}
	}
	return found
}
