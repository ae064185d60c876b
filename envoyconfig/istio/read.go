package istio

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// The targets of patches that this project reads.
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

// The operations of patches.
const (
	merge       = "MERGE"
	mergeLists  = "MERGE_AND_REPLACE_LIST"
	add         = "ADD"
	remove      = "REMOVE"
	replace     = "REPLACE"
	insertFirst = "INSERT_FIRST"
	insertFore  = "INSERT_BEFORE"
	insertAfter = "INSERT_AFTER"
)

// The contexts of patches.
const (
	anyContext = "ANY"
	gateway    = "GATEWAY"
	inbound    = "SIDECAR_INBOUND"
	outbound   = "SIDECAR_OUTBOUND"
	waypoint   = "WAYPOINT"
)

// Router is the name of the last HTTP filter of each connection manager, and connectionManager that
// of the network filter.
const (
	Router            = "envoy.filters.http.router"
	connectionManager = "envoy.filters.network.http_connection_manager"
)

var (
	contexts   = []string{anyContext, inbound, outbound, gateway, waypoint}
	operations = []string{merge, add, remove, insertFore, insertAfter, insertFirst, replace, mergeLists}
)

// effective are the operations that istiod carries out for each target. It drops the others.
var effective = map[string][]string{
	Listener:           {merge, mergeLists, add, remove, insertFore, insertAfter, insertFirst},
	"FILTER_CHAIN":     {merge, mergeLists, add, remove, insertFore, insertAfter, insertFirst},
	NetworkFilter:      {merge, add, remove, insertFore, insertAfter, insertFirst, replace},
	HTTPFilter:         {merge, add, remove, insertFore, insertAfter, insertFirst, replace},
	RouteConfiguration: {merge, mergeLists},
	VirtualHost:        {merge, mergeLists, add, remove, insertFore, insertAfter, insertFirst, replace},
	HTTPRoute:          {merge, mergeLists, add, remove, insertFore, insertAfter, insertFirst},
	Cluster:            {merge, mergeLists, add, remove, insertFore, insertAfter, insertFirst},
	ExtensionConfig:    {add, insertFore, insertAfter, insertFirst},
	"BOOTSTRAP":        {merge, mergeLists},
	"LISTENER_FILTER":  {merge, add, remove, insertFore, insertAfter, insertFirst, replace},
}

// matchOf is the field of match that istiod looks at for each target.
var matchOf = map[string]string{
	Listener: "listener", "FILTER_CHAIN": "listener", NetworkFilter: "listener", HTTPFilter: "listener", "LISTENER_FILTER": "listener",
	RouteConfiguration: "routeConfiguration", VirtualHost: "routeConfiguration", HTTPRoute: "routeConfiguration", Cluster: "cluster",
}

// EnvoyFilter is an object that changes the configuration of proxies.
type EnvoyFilter struct {
	Node    *tree.Node
	Patches []*Patch

	scope    scope
	priority string
}

// Patch is an element of configPatches.
type Patch struct {
	Of                          *EnvoyFilter
	Node, Value                 *tree.Node
	ApplyTo, Operation, Context string

	match *tree.Node
}

// Read reads an EnvoyFilter, and returns an error for each thing that Kubernetes or the webhook of
// istiod rejects.
func Read(n *tree.Node) (*EnvoyFilter, []error) {
	var wrong []error
	objectShape.check(n, &wrong)
	spec := n.Field("spec")
	f := &EnvoyFilter{Node: n, scope: newScope(n), priority: spec.Field("priority").Text}
	for patch := range spec.Field("config_patches").Elements() {
		p := &Patch{
			Of: f, Node: patch, Value: patch.At("patch", "value"), match: patch.Field("match"),
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
		if !at.There() {
			at = p.Node
		}
		wrong = append(wrong, fmt.Errorf("%v: %s", at.Pos(), fmt.Sprintf(format, args...)))
	}
	oneOf := func(at *tree.Node, name string, names []string) {
		if at.There() && !slices.Contains(names, at.Text) {
			report(at, "%s: found %s, want %s%s", name, at.Shown(), strings.Join(names, " or "), rules.DidYouMean(rules.Nearest(strings.ToUpper(at.Text), names)))
		}
	}
	targets := slices.Sorted(func(yield func(string) bool) {
		for target := range effective {
			if !yield(target) {
				return
			}
		}
	})
	patch := p.Node.Field("patch")
	oneOf(p.match.Field("context"), "context", contexts)
	oneOf(p.Node.Field("apply_to"), "applyTo", targets)
	oneOf(patch.Field("operation"), "operation", operations)
	if p.Context == waypoint {
		return wrong // istiod validates no more
	}
	switch {
	case p.ApplyTo == "":
		report(p.Node, "the patch has no applyTo, and Istio rejects it: add one of %s", strings.Join(targets, ", "))
	case !patch.There():
		report(p.Node, "the element has no patch, and Istio rejects it: add patch: { operation: %s, value: ... }", p.usual())
	case p.Operation == "":
		report(patch, "the patch has no operation, and Istio rejects it: add operation: %s", p.usual())
	case p.Operation != remove && !p.Value.There():
		report(patch, "%s needs a value, and Istio rejects the patch without one: add value below patch", p.Operation)
	}
	if version := p.match.At("proxy", "proxy_version"); version.There() {
		if _, err := regexp.Compile(version.Text); err != nil {
			report(version, "proxyVersion: found %s, want a regular expression", version.Shown())
		}
	}
	want := matchOf[p.ApplyTo]
	for _, other := range []string{"listener", "routeConfiguration", "cluster"} {
		if at := p.match.Field(tree.SnakeCase(other)); want != "" && at.There() && other != want {
			report(at, "Istio rejects match.%s for applyTo: %s: write match.%s, or another applyTo", other, p.ApplyTo, want)
		}
	}
	return append(wrong, p.checkFilter()...)
}

// checkFilter returns the errors of a match of filters.
func (p *Patch) checkFilter() []error {
	filter := p.match.At("listener", "filter_chain", "filter")
	sub := filter.Field("sub_filter")
	why := ""
	switch {
	case !filter.There():
	case filter.Field("name").Text == "":
		why = "filter without a name: add name: " + connectionManager
	case !sub.There():
	case p.ApplyTo != HTTPFilter:
		why = "subFilter for applyTo: " + p.ApplyTo + ": write applyTo: HTTP_FILTER, or remove subFilter"
	case sub.Field("name").Text == "":
		why = "subFilter without a name: add name: " + Router
	}
	if why == "" {
		return nil
	}
	return []error{fmt.Errorf("%v: Istio rejects a match of %s", filter.Pos(), why)}
}

// usual returns the operation that patches of this kind mostly have.
func (p *Patch) usual() string {
	switch p.ApplyTo {
	case HTTPFilter, NetworkFilter:
		return insertFore
	case Cluster, Listener, ExtensionConfig:
		return add
	default:
		return merge
	}
}

// Whole reports whether the value is the complete object, and not a part of one that it is merged into.
func (p *Patch) Whole() bool { return !p.Merges() && p.Operation != remove }

// Merges reports whether the value is merged into the objects that match.
func (p *Patch) Merges() bool { return p.Operation == merge || p.Operation == mergeLists }

// ReplacesLists reports whether the lists of the value take the place of those that are there.
func (p *Patch) ReplacesLists() bool { return p.Operation == mergeLists }
