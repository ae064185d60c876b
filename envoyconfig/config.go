package envoyconfig

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/istio"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Config is what files say about rate limits. It does not change once read.
type Config struct {
	managers []*manager
	// tables are the route configurations that have names, for those who get them by RDS.
	tables map[string]*table
	// tableNames are theirs, in the order of the files.
	tableNames []string
	clusters   map[string]*tree.Node
	// extensions are the configurations of filters by ECDS, by name.
	extensions map[string]*tree.Node
	// fragments is what parts of configurations say, such as EnvoyFilters; nil without any.
	fragments *manager
	// envoyFilters are the EnvoyFilters of Istio, in the order of the files, and patches those of all of them.
	envoyFilters []*istio.EnvoyFilter
	patches      []*istio.Patch
	// roots are the values of the files, and sources the files while they are read, by name.
	roots   []*tree.Node
	sources map[string][]byte
	// local are filters that limit without a service, and foreign those that ask and are not looked at.
	localFilters, foreignFilters []*tree.Node
	// networkFilters are the filters that ask when a connection begins.
	networkFilters []*filter
	// overrides are configurations of quota filters for routes.
	overrides []*tree.Node
	// allListeners and allClusters say that none comes from elsewhere; fromElsewhere is what says that listeners do.
	allListeners, allClusters bool
	listenerSource            *tree.Node
	// allowances are the warnings that comments acknowledge.
	allowances rules.Allowances
	// hasDump says that some of the files are dumps of a running Envoy.
	hasDump bool
	// release is that of the Envoy which wrote a dump; 0 where no file is one.
	release api.Release
	// unfilled are the places of what a snippet leaves open.
	unfilled []rules.Pos
	// nodeCluster is node.cluster of a bootstrap, or missing.
	nodeCluster *tree.Node
	runtime     runtimeValues
	// valuesAreFormats says that the runtime has Envoy take some descriptor values for format
	// strings; see [formatterFeature].
	valuesAreFormats bool
	// validator has what is not as Envoy's API has it: nothing, of a Config that is returned.
	validator        api.Validator
	allowsDeprecated bool
}
