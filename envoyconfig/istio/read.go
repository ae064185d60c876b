package istio

import (
	"strconv"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Values of applyTo.
const (
	HTTPFilter         = "HTTP_FILTER"
	RouteConfiguration = "ROUTE_CONFIGURATION"
	VirtualHost        = "VIRTUAL_HOST"
	HTTPRoute          = "HTTP_ROUTE"
	Cluster            = "CLUSTER"
	Listener           = "LISTENER"
	ExtensionConfig    = "EXTENSION_CONFIG"
)

// Operations and contexts of patches.
const (
	merge        = "MERGE"
	mergeLists   = "MERGE_AND_REPLACE_LIST"
	add          = "ADD"
	remove       = "REMOVE"
	replace      = "REPLACE"
	insertFirst  = "INSERT_FIRST"
	insertBefore = "INSERT_BEFORE"
	insertAfter  = "INSERT_AFTER"

	anyContext = "ANY"
	gateway    = "GATEWAY"
	inbound    = "SIDECAR_INBOUND"
	outbound   = "SIDECAR_OUTBOUND"
)

var (
	addOperations    = []string{add, insertBefore, insertAfter, insertFirst}
	filterOperations = append([]string{merge, remove, replace}, addOperations...)
	objectOperations = append([]string{merge, mergeLists, remove}, addOperations...)
)

// target has the operations that istiod implements for an applyTo, and the usual one.
type target struct {
	operations []string
	usual      string
}

var targets = map[string]target{
	Listener:           {objectOperations, add},
	"FILTER_CHAIN":     {objectOperations, merge},
	"NETWORK_FILTER":   {filterOperations, insertBefore},
	HTTPFilter:         {filterOperations, insertBefore},
	"LISTENER_FILTER":  {filterOperations, insertBefore},
	RouteConfiguration: {[]string{merge, mergeLists}, merge},
	VirtualHost:        {append([]string{replace}, objectOperations...), merge},
	HTTPRoute:          {objectOperations, merge},
	Cluster:            {objectOperations, add},
	ExtensionConfig:    {addOperations, add},
	"BOOTSTRAP":        {[]string{merge, mergeLists}, merge},
}

// EnvoyFilter is an object that patches the configuration of proxies.
type EnvoyFilter struct {
	Node    *tree.Node
	Patches []*Patch

	scope    scope
	priority int64
	// rank orders EnvoyFilters of the same priority: 0 in the root namespace, 1 elsewhere. istiod then compares
	// creation times, which files do not contain.
	rank int
}

// Patch is an element of configPatches.
type Patch struct {
	Node, Value                 *tree.Node
	ApplyTo, Operation, Context string
	// AddsFilter is true if the value is a rate limit filter, and AddsPolicies if it adds rate_limits to routes. The
	// caller of Read sets them.
	AddsFilter, AddsPolicies bool

	parent *EnvoyFilter
	match  *tree.Node
}

// Read reads an EnvoyFilter.
func Read(n *tree.Node) *EnvoyFilter {
	priority, _ := strconv.ParseInt(n.At("spec", "priority").Text, 10, 64) // 0 without one
	f := &EnvoyFilter{Node: n, scope: newScope(n), priority: priority}
	if f.scope.namespace != rootNamespace {
		f.rank = 1
	}
	for patch := range n.At("spec", "config_patches").Elements() {
		p := &Patch{
			parent: f, Node: patch, Value: patch.At("patch", "value"), match: patch.Field("match"),
			ApplyTo: patch.Field("apply_to").Text, Operation: patch.At("patch", "operation").Text, Context: patch.At("match", "context").Text,
		}
		if p.Context == "" {
			p.Context = anyContext
		}
		f.Patches = append(f.Patches, p)
	}
	return f
}

// IsMerge reports whether the value is merged into the matching objects.
func (p *Patch) IsMerge() bool { return p.Operation == merge || p.Operation == mergeLists }

// Complements reports whether one of the patches adds a filter and the other one rate_limits for it.
func (p *Patch) Complements(other *Patch) bool {
	return p.AddsFilter && other.AddsPolicies || p.AddsPolicies && other.AddsFilter
}

// HostMatch selects virtual hosts; the zero value selects all.
type HostMatch struct{ Name, Domain string }

// HostMatch returns the virtual hosts that the patch selects.
func (p *Patch) HostMatch() HostMatch {
	host := p.match.At("route_configuration", "vhost")
	return HostMatch{host.Field("name").Text, host.Field("domain_name").Text}
}

// RouteName returns the name of the route that the patch selects; empty for all.
func (p *Patch) RouteName() string {
	return p.match.At("route_configuration", "vhost", "route", "name").Text
}

// subFilter returns the name of the HTTP filter that the patch selects.
func (p *Patch) subFilter() *tree.Node {
	return p.match.At("listener", "filter_chain", "filter", "sub_filter", "name")
}
