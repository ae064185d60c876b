package istio

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Idle is a part of a patch for which istiod does not do what the patch says.
type Idle struct {
	At  *tree.Node
	Why string
	// Sure is false where something that is in no file may make the patch useful.
	Sure bool
}

var (
	hostAndPort  = regexp.MustCompile(`:[0-9]+$`)
	inboundHost  = regexp.MustCompile(`^inbound\|http\|[0-9]+$`)
	outboundHost = []string{"allow_any", "block_all", "allow_any_dynamic_dns"}
)

// Idle returns the first reason for which the patch does nothing, or another thing than it seems to; nil without
// one. others are all patches, some of which add filters.
func (p *Patch) Idle(others []*Patch) *Idle {
	operation := p.Node.At("patch", "operation")
	if operations := effective[p.ApplyTo]; !slices.Contains(operations, p.Operation) {
		return &Idle{operation, fmt.Sprintf("istiod ignores %s for applyTo: %s: write %s", p.Operation, p.ApplyTo, p.usual()), true}
	}
	switch p.ApplyTo {
	case HTTPFilter:
		return p.idleFilter(others)
	case VirtualHost, HTTPRoute, RouteConfiguration:
		if idle := p.idleAddition(operation); idle != nil {
			return idle
		}
		return p.idleRoutes()
	}
	return nil
}

// idleFilter is Idle for an HTTP filter.
func (p *Patch) idleFilter(others []*Patch) *Idle {
	operation, sub := p.Node.At("patch", "operation"), p.subFilter()
	if name := p.match.At("listener", "filter_chain", "filter", "name"); name.There() && name.Text != connectionManager {
		return &Idle{name, fmt.Sprintf("Istio has no connection manager named %s, so that the patch does nothing: write %s", name.Shown(), connectionManager), true}
	}
	inserted := slices.ContainsFunc(others, func(o *Patch) bool { return o.ApplyTo == HTTPFilter && o.Value.Field("name").Text == sub.Text })
	switch {
	case !sub.There() && (p.Operation == replace || p.Operation == remove):
		return &Idle{operation, fmt.Sprintf("istiod ignores %s without subFilter: name the filter that it is for", p.Operation), true}
	case p.Operation == merge && (sub.Text == Router || !sub.There()) && p.Value.Field("typed_config").There():
		return &Idle{operation, "MERGE changes filters that are there, and adds none: write INSERT_BEFORE", true}
	case !sub.There() || inserted || slices.Contains(generated, sub.Text):
		return nil
	}
	near := rules.Nearest(sub.Text, generated)
	old := strings.HasPrefix(sub.Text, "envoy.") && !strings.HasPrefix(sub.Text, "envoy.filters.http.")
	why := fmt.Sprintf("Istio adds no filter named %s, and no patch in these files does, so that this patch does nothing", sub.Shown())
	switch {
	case old:
		if after, ok := strings.CutPrefix(sub.Text, "envoy."); ok && slices.Contains(generated, "envoy.filters.http."+after) {
			near = []string{"envoy.filters.http." + after}
		}
		return &Idle{sub, why + ": write " + Router + rules.DidYouMean(near), true}
	case len(near) > 0:
		return &Idle{sub, why + ": correct the name" + rules.DidYouMean(near), true}
	}
	return &Idle{sub, why + " unless something else adds it: write " + Router, false}
}

// idleAddition finds a part of a host or a route that is added, and so would have to be a complete one.
func (p *Patch) idleAddition(operation *tree.Node) *Idle {
	if !p.Whole() {
		return nil
	}
	switch {
	case p.ApplyTo == VirtualHost && len(p.Value.Field("domains").Nodes) == 0:
		return &Idle{operation, p.Operation + " adds a virtual host, which Envoy rejects without domains, and changes none: write MERGE", true}
	case p.ApplyTo == HTTPRoute && !p.Value.Field("match").There():
		return &Idle{operation, p.Operation + " adds a route, which Envoy rejects without match, and changes none: write MERGE", true}
	}
	return nil
}

// idleRoutes finds a name that no route configuration, virtual host or gateway of Istio has.
func (p *Patch) idleRoutes() *Idle {
	routes := p.match.Field("route_configuration")
	if at := routes.Field("gateway"); at.There() && !strings.Contains(at.Text, "/") {
		return &Idle{at, fmt.Sprintf("istiod compares gateway with NAMESPACE/NAME, so that %s matches none: write it so", at.Shown()), true}
	}
	at := routes.At("vhost", "name")
	name := at.Text
	if name == "" || p.Context == waypoint {
		return nil
	}
	isOutbound := hostAndPort.MatchString(name) || slices.Contains(outboundHost, name)
	isInbound := inboundHost.MatchString(name)
	want := ""
	switch p.Context {
	case gateway:
		if !hostAndPort.MatchString(name) {
			want = "those of gateways are host:port, such as " + p.example(name)
		}
	case outbound:
		if !isOutbound {
			want = "those of context SIDECAR_OUTBOUND are host:port, such as " + p.example(name)
		}
	case inbound:
		if !isInbound {
			want = "those of context SIDECAR_INBOUND are such as inbound|http|8080"
		}
	default:
		if !isInbound && !isOutbound {
			want = "they are host:port, such as " + p.example(name) + ", or inbound|http|8080"
		}
	}
	if want == "" {
		return nil
	}
	return &Idle{at, fmt.Sprintf("istiod compares names of virtual hosts exactly, and none is %s: %s; without name the patch is for all of them", at.Shown(), want), true}
}

func (p *Patch) example(name string) string {
	return fmt.Sprintf("%q", rules.Shorten(strings.TrimSuffix(name, ":"))+":80")
}

// isCluster has the form of the names that istiod gives to clusters, and those of the ones in each proxy.
var isCluster = regexp.MustCompile(`^(outbound|inbound|outbound_|inbound-vip)[|_][^|]*[|_][^|]*[|_]|^(PassthroughCluster|BlackHoleCluster|InboundPassthroughCluster.*|xds-grpc|sds-grpc|agent|zipkin|prometheus_stats)$`)

// IsCluster reports whether a name may be that of a cluster that istiod makes.
func IsCluster(name string) bool { return isCluster.MatchString(name) }
