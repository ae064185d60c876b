package envoyconfig

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/istio"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Config is the configuration in a set of files, as far as rate limits depend on it. Only its exported fields may be
// changed, and not concurrently with its methods.
type Config struct {
	managers []*manager
	// tables contains the named route configurations, which connection managers get by RDS.
	tables map[string]*table
	// tableNames are the keys of tables in the order of the files.
	tableNames []string
	clusters   map[string]*tree.Node
	// extensions contains the filter configurations that come by ECDS, by name.
	extensions map[string]*tree.Node
	// fragments combines the partial configurations, such as EnvoyFilters; nil if there are none.
	fragments *manager
	// envoyFilters are Istio's EnvoyFilters in the order of the files; patches are the patches of all of them.
	envoyFilters []*istio.EnvoyFilter
	patches      []*istio.Patch
	// roots are the documents of the files. sources maps file names to lines while the files are read.
	roots   []*tree.Node
	sources map[string][][]byte
	// localFilters are local rate limit filters. uncheckedFilters call a service but are not checked.
	localFilters, uncheckedFilters []*tree.Node
	// networkFilters are rate limit filters that call the service once per connection.
	networkFilters []*filter
	// allListeners and allClusters are true if the files contain all listeners or clusters. listenerSource is the
	// lds_config that provides other listeners, or missing.
	allListeners, allClusters bool
	listenerSource            *tree.Node
	// allowances are the warnings acknowledged by comments.
	allowances rules.Allowances
	// release is N of Envoy 1.N that wrote a dump, and patch the third part of its version; 0 without a dump.
	release, patch uint64
	// placeholders are the positions of snippet placeholders that were not replaced.
	placeholders []rules.Pos
	// clustersFilter is true if clusters may have filters of their own.
	clustersFilter bool
	// nodeCluster is node.cluster of a bootstrap, or missing.
	nodeCluster *tree.Node
	runtime     runtimeValues
	// SoftHeader is the name in serve --soft-header; empty for [DefaultSoftHeader].
	SoftHeader string
}
