package envoyconfig

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// UnknownPrefix begins a reason, such as Calls.NotCalled, if it is unknown whether Envoy calls the service.
const UnknownPrefix = "unknown: "

// OnlyNetworkFilters is the value of Calls.NotCalled if only network filters call the service.
const OnlyNetworkFilters = "only network filters call the service, when a connection starts"

// Calls are the calls that Envoy makes to the service for a request.
type Calls struct {
	// VirtualHost and Route name the virtual host and the route that Envoy selects; empty if it selects noRoute.
	VirtualHost, Route string
	// Pos is the position of the route.
	Pos rules.Pos
	// NotCalled is the reason why no HTTP filter calls the service; empty if a filter may call it. It begins with
	// [UnknownPrefix] if that is unknown.
	NotCalled string
	// ByFilter has an element for each rate limit filter, in order.
	ByFilter []Call
	// ByConnection has an element for each network filter, which calls the service once per connection.
	ByConnection []Call
}

// Call is the call of a rate limit filter.
type Call struct {
	Domain string
	// Filter is the position of the filter.
	Filter rules.Pos
	// NotCalled is the reason why the filter does not call the service; empty if it does. It begins with
	// [UnknownPrefix] if that is unknown.
	NotCalled string
	// Descriptors has an element for each policy that applies.
	Descriptors []Descriptor
	// FiltersBefore are the names of the filters before this one that may change the request.
	FiltersBefore []string
}

// Calls returns the calls that Envoy makes for a request.
func (c *Config) Calls(r Request) (*Calls, error) {
	m, err := c.chooseManager(&r)
	if err != nil {
		return nil, err
	}
	calls := &Calls{}
	for _, f := range m.networkFilters {
		calls.ByConnection = append(calls.ByConnection, f.connectionCall())
	}
	if !m.hasLimits() {
		calls.NotCalled = OnlyNetworkFilters
		return calls, nil
	}
	if m.table == nil {
		return nil, fmt.Errorf("%v: %s has no routes in these files: pass the output of /config_dump%s", m.node.Pos(),
			m.name(), m.wantedTable())
	}
	x := &exchange{Request: r, manager: m, managerNode: m.node, nodeCluster: c.nodeCluster}
	x.earlyMutation = x.earlyMutationReason()
	h, found, noRoute := m.table.findRoute(x)
	calls.NotCalled = noRoute
	if h != nil {
		calls.VirtualHost = h.name
	}
	if noRoute != "" {
		return calls, nil
	}
	calls.Route = found.displayName()
	calls.Pos = found.node.Pos()
	x.routeNode = found.node
	calls.NotCalled = cmp.Or(x.upgradeReason(), h.redirectReason(x), found.noCallReason(), c.noClusterReason(x),
		m.onlyQuotasReason())
	if calls.NotCalled != "" {
		return calls, nil
	}
	for _, f := range m.rateLimitFilters() {
		calls.ByFilter = append(calls.ByFilter, f.callOf(x, m, h, found))
	}
	return calls, nil
}

// onlyQuotasReason returns why the filters of a manager never call the service; empty if one may.
func (m *manager) onlyQuotasReason() string {
	if quotas := m.quotaFilters(); len(quotas) > 0 && len(m.rateLimitFilters()) == 0 {
		return "the quota filter at " + quotas[0].node.Pos().String() + " decides itself"
	}
	return ""
}

// findRoute returns the virtual host and route of a request. noRoute is the reason why there is none or it is unknown.
func (t *table) findRoute(x *exchange) (h *virtualHost, found *route, noRoute string) {
	if h, found = t.routeNamed(x.RouteName); found != nil {
		return h, found, ""
	}
	authority, unknown := x.authority()
	if t.node.Field("vhost_header").Exists() {
		unknown = "vhost_header names the virtual host"
	}
	switch {
	case t.node.Field("vhds").Exists():
		return nil, nil, UnknownPrefix + "vhds adds virtual hosts that these files do not contain"
	case unknown != "" && !t.matchesAnyHost():
		return nil, nil, UnknownPrefix + ":authority: " + unknown
	}
	if h = t.host(authority); h == nil {
		return nil, nil, fmt.Sprintf("no virtual host matches the authority %q", authority)
	}
	found, unknown = h.firstMatch(x)
	switch {
	case unknown != "":
		noRoute = UnknownPrefix + unknown
	case found == nil:
		noRoute = fmt.Sprintf("no route of virtual host %q matches", h.name)
	}
	return h, found, noRoute
}

// chooseManager returns the connection manager that handles the request.
func (c *Config) chooseManager(r *Request) (*manager, error) {
	found := c.managersOf(r, (*manager).hasLimits)
	if len(found) == 0 {
		found = c.managersOf(r, func(m *manager) bool { return len(m.networkFilters) > 0 })
	}
	names := make([]string, len(found))
	for i, m := range found {
		names[i] = m.listener
	}
	switch {
	case len(found) > 0 && found[0].fragments:
		return nil, fmt.Errorf("%v: excerpts of a configuration do not determine the route of a request: pass the output of the proxy's /config_dump", found[0].node.Pos())
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && r.Listener == "" && len(c.networkFilters) > 0:
		return nil, fmt.Errorf("%v: only a network filter calls the service, when a connection starts: explain its descriptors with --domain and --descriptor",
			c.networkFilters[0].node.Pos())
	case len(found) == 0 && r.Listener != "":
		return nil, fmt.Errorf("these files contain no listener %q with an HTTP rate limit filter", r.Listener)
	case len(found) == 0:
		return nil, errors.New("no listener in these files has a rate limit filter, so Envoy never calls the service")
	case r.Listener == "":
		return nil, fmt.Errorf("several listeners have a rate limit filter: select one with --listener: %s",
			strings.Join(names, ", "))
	default:
		return nil, fmt.Errorf("listener %q has several filter chains with a rate limit filter: remove all but the one that handles the request", r.Listener)
	}
}

// managersOf returns the connection managers that may receive the request and for which accept returns true.
func (c *Config) managersOf(r *Request, accept func(*manager) bool) (found []*manager) {
	for _, m := range c.managers {
		if accept(m) && (r.Listener == "" || r.Listener == m.listener) {
			found = append(found, m)
		}
	}
	return found
}

// connectionCall returns the call of a network filter for a new connection.
func (f *filter) connectionCall() Call {
	c := Call{Domain: f.domain(), Filter: f.node.Pos()}
	for n, forms := range f.connectionForms() {
		d := Descriptor{Pos: n.Pos()}
		for _, form := range forms {
			d.keys = append(d.keys, form.Key)
			d.Entries = append(d.Entries, Entry{form.Key, form.Value})
			if form.AnyValue {
				d.Unknown = "the format string " + strconv.Quote(rules.Shorten(form.Value))
			}
		}
		c.Descriptors = append(c.Descriptors, d)
	}
	return c
}

// callOf returns the filter's call for a request on a route. The call is unknown if it differs between the route's
// branches, the entries of weighted_clusters.
func (f *filter) callOf(x *exchange, m *manager, h *virtualHost, r *route) Call {
	if len(r.branches) == 0 {
		return f.call(x, m, h, r)
	}
	first := f.call(x, m, h, r.branches[0])
	for _, branch := range r.branches[1:] {
		if !reflect.DeepEqual(first, f.call(x, m, h, branch)) {
			return Call{
				Domain: first.Domain, Filter: first.Filter, FiltersBefore: first.FiltersBefore,
				NotCalled: UnknownPrefix + "the clusters of weighted_clusters, at " + branch.action.Field("weighted_clusters").Pos().String() + ", configure the filter differently",
			}
		}
	}
	return first
}

func (f *filter) call(x *exchange, m *manager, h *virtualHost, r *route) Call {
	lists, config := f.listsFor(m.table, h, r)
	c := Call{Filter: f.node.Pos(), FiltersBefore: m.filtersBefore(f)}
	c.Domain, _ = f.domainOf(config)
	if _, disabled := f.perRoute(m.table, h, r); disabled {
		c.NotCalled = "the filter is disabled here"
		return c
	}
	if c.NotCalled = x.typeMismatchReason(f.config.Field("request_type").Text); c.NotCalled != "" {
		return c
	}
	switch enabled := f.config.Field("filter_enabled"); {
	case f.matcher != nil:
		c.NotCalled = UnknownPrefix + "the matcher at " + f.matcher.Pos().String() + " may skip the filter"
	case !enabled.Exists():
		c.NotCalled, _ = m.runtime.disabled(filterEnabled)
	case !m.runtime.isAlways(enabled):
		c.NotCalled = UnknownPrefix + "filter_enabled, at " + enabled.Pos().String()
	}
	if c.NotCalled != "" {
		return c
	}
	for _, l := range lists {
		if l.notSent != "" {
			continue
		}
		for _, e := range m.evaluateList(f, l.policyList, l.own, h, r) {
			c.Descriptors = append(c.Descriptors, e.descriptor(x))
		}
	}
	if len(c.Descriptors) == 0 {
		c.NotCalled = "no rate_limits apply here"
	}
	return c
}

// noClusterReason returns why Envoy does not call the service for a request without an upstream cluster; empty if the
// request has or may have one.
func (c *Config) noClusterReason(x *exchange) string {
	name, unknown := x.upstreamCluster()
	switch {
	case unknown != "":
		return ""
	case name == "":
		return "the request has no upstream cluster, since it lacks the header " +
			x.routeNode.At("route", "cluster_header").Describe()
	case len(c.clusters) > 0 && c.clusters[name] == nil:
		return UnknownPrefix + "the cluster " + strconv.Quote(name) +
			" is not in these files, and Envoy calls the service only if the cluster exists"
	default:
		return ""
	}
}
