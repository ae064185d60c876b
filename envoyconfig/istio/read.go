package istio

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Values of applyTo.
const (
	HTTPFilter         = "HTTP_FILTER"
	NetworkFilter      = "NETWORK_FILTER"
	RouteConfiguration = "ROUTE_CONFIGURATION"
	VirtualHost        = "VIRTUAL_HOST"
	HTTPRoute          = "HTTP_ROUTE"
	Cluster            = "CLUSTER"
	Listener           = "LISTENER"
	ExtensionConfig    = "EXTENSION_CONFIG"
)

// apiGroup is the API group of EnvoyFilter.
const apiGroup = "networking.istio.io"

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
	waypoint   = "WAYPOINT"
)

var (
	contexts         = []string{anyContext, inbound, outbound, gateway, waypoint}
	addOperations    = []string{add, insertBefore, insertAfter, insertFirst}
	filterOperations = append([]string{merge, remove, replace}, addOperations...)
	objectOperations = append([]string{merge, mergeLists, remove}, addOperations...)
	operations       = append([]string{mergeLists}, filterOperations...)

	filterClasses = []string{"UNSPECIFIED", "AUTHN", "AUTHZ", "STATS"}
)

// targets maps applyTo to the operations that istiod implements for it, the field of match that it uses, and the
// usual operation.
var targets = map[string]struct {
	operations   []string
	match, usual string
}{
	Listener:           {objectOperations, "listener", add},
	"FILTER_CHAIN":     {objectOperations, "listener", merge},
	NetworkFilter:      {filterOperations, "listener", insertBefore},
	HTTPFilter:         {filterOperations, "listener", insertBefore},
	"LISTENER_FILTER":  {filterOperations, "listener", insertBefore},
	RouteConfiguration: {[]string{merge, mergeLists}, "routeConfiguration", merge},
	VirtualHost:        {append([]string{replace}, objectOperations...), "routeConfiguration", merge},
	HTTPRoute:          {objectOperations, "routeConfiguration", merge},
	Cluster:            {objectOperations, "cluster", add},
	ExtensionConfig:    {addOperations, "", add},
	"BOOTSTRAP":        {[]string{merge, mergeLists}, "", merge},
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
	class  string
}

// Class is equal for patches with equal kinds of values that apply to the same listeners.
func (p *Patch) Class() string {
	if p.class == "" {
		typeName, _ := p.Value.Field("typed_config").Typed()
		p.class = fmt.Sprint(p.AddsFilter, p.AddsPolicies, typeName, p.Context, p.parent.scope.key())
	}
	return p.class
}

// Read reads an EnvoyFilter. wrong has an error for each part that Kubernetes or istiod rejects.
func Read(n *tree.Node) (f *EnvoyFilter, wrong []error) {
	priority, _ := strconv.ParseInt(n.At("spec", "priority").Text, 10, 64) // 0 without one
	f, wrong = &EnvoyFilter{Node: n, scope: newScope(n), priority: priority}, checkFields(n, "")
	if f.scope.namespace != rootNamespace {
		f.rank = 1
	}
	group, _, _ := strings.Cut(n.Field("api_version").Text, "/")
	if at := n.Field("api_version"); at.Exists() && group != apiGroup {
		wrong = append(wrong, fmt.Errorf("%v: apiVersion: found %s, which has no EnvoyFilter: write %s/v1alpha3", at.Pos(), at.Describe(), apiGroup))
	}
	if at := n.At("spec", "target_refs"); len(at.Nodes) > 0 && n.At("spec", "workload_selector").Exists() {
		wrong = append(wrong, fmt.Errorf("%v: Istio accepts only one of targetRefs, workloadSelector: remove one", at.Pos()))
	}
	for patch := range n.At("spec", "config_patches").Elements() {
		p := &Patch{
			parent: f, Node: patch, Value: patch.At("patch", "value"), match: patch.Field("match"),
			ApplyTo: patch.Field("apply_to").Text, Operation: patch.At("patch", "operation").Text, Context: patch.At("match", "context").Text,
		}
		if p.Context == "" {
			p.Context = anyContext
		}
		wrong = append(wrong, p.check()...)
		f.Patches = append(f.Patches, p)
	}
	return f, wrong
}

// check returns the errors of a patch.
func (p *Patch) check() (wrong []error) {
	report := func(at *tree.Node, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%v: %s", at.Pos(), fmt.Sprintf(format, args...)))
	}
	oneOf := func(at *tree.Node, name string, names []string) {
		if at.Exists() && !slices.Contains(names, at.Text) {
			report(at, "%s: found %s, want %s%s", name, at.Describe(), strings.Join(names, " or "), rules.DidYouMean(rules.Nearest(strings.ToUpper(at.Text), names)))
		}
	}
	patch, of, names := p.Node.Field("patch"), targets[p.ApplyTo], slices.Sorted(maps.Keys(targets))
	oneOf(p.match.Field("context"), "context", contexts)
	oneOf(p.Node.Field("apply_to"), "applyTo", names)
	oneOf(patch.Field("operation"), "operation", operations)
	oneOf(patch.Field("filter_class"), "filterClass", filterClasses)
	version := p.match.At("proxy", "proxy_version")
	if _, err := regexp.Compile(version.Text); err != nil {
		report(version, "proxyVersion: found %s, want a regular expression", version.Describe())
	}
	if p.Context == waypoint {
		return wrong // istiod validates nothing else
	}
	switch {
	case p.ApplyTo == "":
		report(p.Node, "the patch has no applyTo, and Istio rejects it: add one of %s", strings.Join(names, ", "))
	case !patch.Exists():
		report(p.Node, "the element has no patch, and Istio rejects it: add patch: { operation: %s, value: ... }", of.usual)
	case p.Operation == "":
		report(patch, "the patch has no operation, and Istio rejects it: add operation: %s", of.usual)
	case p.Operation != remove && !p.Value.Exists():
		report(patch, "%s needs a value, and Istio rejects the patch without one: add value below patch", p.Operation)
	}
	for _, other := range []string{"listener", "routeConfiguration", "cluster"} {
		if at := p.match.Field(tree.SnakeCase(other)); of.match != "" && at.Exists() && other != of.match {
			report(at, "Istio rejects match.%s for applyTo: %s: write match.%s, or another applyTo", other, p.ApplyTo, of.match)
		}
	}
	if sub := p.subFilter(); sub.Exists() && p.ApplyTo != HTTPFilter && of.match == "listener" {
		report(sub, "Istio rejects subFilter for applyTo: %s: write applyTo: HTTP_FILTER, or remove subFilter", p.ApplyTo)
	}
	return wrong
}

// IsComplete reports whether the value is a complete object and not merged into another.
func (p *Patch) IsComplete() bool { return p.Value.Exists() && !p.IsMerge() }

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
