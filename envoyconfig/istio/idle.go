package istio

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// Idle is the part of a patch for which istiod does nothing, or another thing than the patch seems to say.
type Idle struct {
	At  *tree.Node
	Why string
	// Severity is a warning where something that is in no file may make the patch useful.
	Severity rules.Severity
}

const connectionManager = "envoy.filters.network.http_connection_manager"

// hostNames are the forms of the names of virtual hosts in each context.
var hostNames = map[string]*regexp.Regexp{
	gateway:    regexp.MustCompile(`:[0-9]+$`),
	outbound:   regexp.MustCompile(`:[0-9]+$|^(allow_any|block_all|allow_any_dynamic_dns)$`),
	inbound:    regexp.MustCompile(`^inbound\|http\|[0-9]+$`),
	anyContext: regexp.MustCompile(`:[0-9]+$|^(allow_any|block_all|allow_any_dynamic_dns)$|^inbound\|http\|[0-9]+$`),
}

// Idle returns the first reason for which the patch does nothing; nil without one. all are the patches of all files,
// some of which add filters.
func (p *Patch) Idle(all []*Patch) *Idle {
	operation := p.Node.At("patch", "operation")
	if !slices.Contains(targets[p.ApplyTo].operations, p.Operation) {
		return &Idle{operation, fmt.Sprintf("istiod ignores %s for applyTo: %s: write %s", p.Operation, p.ApplyTo, targets[p.ApplyTo].usual), rules.Error}
	}
	switch {
	case p.ApplyTo == HTTPFilter:
		return p.idleFilter(all, operation)
	case p.ApplyTo == VirtualHost && p.Whole() && len(p.Value.Field("domains").Nodes) == 0:
		return &Idle{operation, p.Operation + " adds a virtual host, which Envoy rejects without domains, and changes none: write MERGE", rules.Error}
	case p.ApplyTo == HTTPRoute && p.Whole() && !p.Value.Field("match").There():
		return &Idle{operation, p.Operation + " adds a route, which Envoy rejects without match, and changes none: write MERGE", rules.Error}
	}
	return p.idleRoutes()
}

// idleFilter is Idle for an HTTP filter.
func (p *Patch) idleFilter(all []*Patch, operation *tree.Node) *Idle {
	sub := p.subFilter()
	if name := p.match.At("listener", "filter_chain", "filter", "name"); name.There() && name.Text != connectionManager {
		return &Idle{name, fmt.Sprintf("Istio has no connection manager named %s, so that the patch does nothing: write %s", name.Shown(), connectionManager), rules.Error}
	}
	isGenerated := slices.Contains(generated, sub.Text)
	switch {
	case p.Operation == replace && !sub.There():
		return &Idle{operation, "istiod ignores REPLACE without subFilter: name the filter that it is for", rules.Error}
	case p.Operation == merge && (isGenerated || !sub.There()):
		return &Idle{operation, "MERGE changes filters that are there, and adds none: write INSERT_BEFORE", rules.Error}
	case !sub.There() || isGenerated || slices.ContainsFunc(all, func(o *Patch) bool { return o.ApplyTo == HTTPFilter && o.Value.Field("name").Text == sub.Text }):
		return nil
	}
	near, severity := rules.Nearest(sub.Text, generated), rules.Warning
	if len(near) > 0 || strings.HasPrefix(sub.Text, "envoy.") && !strings.HasPrefix(sub.Text, "envoy.filters.http.") {
		severity = rules.Error
	}
	return &Idle{sub, fmt.Sprintf("Istio adds no filter named %s, and no patch in these files does: unless something else adds it, this patch does nothing: write %s%s",
		sub.Shown(), Router, rules.DidYouMean(near)), severity}
}

// idleRoutes finds a name that no virtual host and no gateway of Istio has.
func (p *Patch) idleRoutes() *Idle {
	routes := p.match.Field("route_configuration")
	if at := routes.Field("gateway"); at.There() && !strings.Contains(at.Text, "/") {
		return &Idle{at, fmt.Sprintf("istiod compares gateway with NAMESPACE/NAME, so that %s matches none: write it so", at.Shown()), rules.Error}
	}
	at := routes.At("vhost", "name")
	if form := hostNames[p.Context]; at.Text == "" || form == nil || form.MatchString(at.Text) {
		return nil
	}
	want := fmt.Sprintf("host:port, such as %q", rules.Shorten(at.Text)+":80")
	if p.Context == inbound {
		want = "such as inbound|http|8080"
	}
	return &Idle{at, fmt.Sprintf("istiod compares names of virtual hosts exactly, and none is %s: they are %s; without name the patch is for all of them", at.Shown(), want), rules.Error}
}
