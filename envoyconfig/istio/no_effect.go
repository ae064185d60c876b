package istio

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// NoEffect describes why istiod ignores a patch, or applies it in an unexpected way.
type NoEffect struct {
	At  *tree.Node
	Why string
	// Severity is a warning if a resource outside the files may give the patch an effect.
	Severity rules.Severity
}

const connectionManager = "envoy.filters.network.http_connection_manager"

// hostNameForms match the names of virtual hosts by context.
var hostNameForms = map[string]*regexp.Regexp{
	gateway:    regexp.MustCompile(`:[0-9]+$`),
	outbound:   regexp.MustCompile(`:[0-9]+$|^(allow_any|block_all|allow_any_dynamic_dns)$`),
	inbound:    regexp.MustCompile(`^inbound\|http\|([0-9]+|CHANGE-ME)$`), // Check reports the placeholder of a snippet
	anyContext: regexp.MustCompile(`:[0-9]+$|^(allow_any|block_all|allow_any_dynamic_dns)$|^inbound\|http\|[0-9]+$`),
}

// NoEffect returns the first reason why the patch has no effect; nil if there is none. all are the patches of all
// files, some of which add filters.
func (p *Patch) NoEffect(all []*Patch) *NoEffect {
	operation := p.Node.At("patch", "operation")
	if !slices.Contains(targets[p.ApplyTo].operations, p.Operation) {
		return &NoEffect{
			operation, fmt.Sprintf("istiod ignores %s for applyTo: %s: write %s", p.Operation, p.ApplyTo, targets[p.ApplyTo].usual), rules.Error,
		}
	}
	switch {
	case p.ApplyTo == HTTPFilter:
		return p.filterWithoutEffect(all, operation)
	case p.ApplyTo == VirtualHost && p.IsComplete() && len(p.Value.Field("domains").Nodes) == 0:
		return &NoEffect{
			operation, p.Operation + " adds a virtual host, which Envoy rejects without domains, and changes none: write MERGE", rules.Error,
		}
	case p.ApplyTo == HTTPRoute && p.IsComplete() && !p.Value.Field("match").Exists():
		return &NoEffect{
			operation, p.Operation + " adds a route, which Envoy rejects without match, and changes none: write MERGE", rules.Error,
		}
	}
	return p.routesWithoutEffect()
}

// filterWithoutEffect is NoEffect for an HTTP filter.
func (p *Patch) filterWithoutEffect(all []*Patch, operation *tree.Node) *NoEffect {
	sub := p.subFilter()
	if name := p.match.At("listener", "filter_chain", "filter", "name"); name.Exists() &&
		name.Text != connectionManager {
		return &NoEffect{
			name, fmt.Sprintf("Istio has no connection manager named %s, so the patch does nothing: write %s", name.Describe(), connectionManager), rules.Error,
		}
	}
	isGenerated := slices.Contains(generatedFilters, sub.Text)
	switch {
	case p.Operation == replace && !sub.Exists():
		return &NoEffect{operation, "istiod ignores REPLACE without subFilter: name the filter to replace", rules.Error}
	case p.Operation == merge && (isGenerated || !sub.Exists()):
		return &NoEffect{operation, "MERGE changes existing filters and adds none: write INSERT_BEFORE", rules.Error}
	case !sub.Exists() || isGenerated || slices.ContainsFunc(all,
		func(o *Patch) bool { return o.ApplyTo == HTTPFilter && o.Value.Field("name").Text == sub.Text }):
		return nil
	}
	near := rules.DidYouMean(sub.Text, generatedFilters)
	severity := rules.Warning
	if near != "" || strings.HasPrefix(sub.Text, "envoy.") && !strings.HasPrefix(sub.Text, "envoy.filters.http.") {
		severity = rules.Error
	}
	return &NoEffect{sub, fmt.Sprintf("Istio adds no filter named %s, and no patch in these files does: unless something else adds it, this patch does nothing: write %s%s",
		sub.Describe(), Router, near), severity}
}

// routesWithoutEffect reports names that no virtual host and no gateway of Istio has.
func (p *Patch) routesWithoutEffect() *NoEffect {
	routes := p.match.Field("route_configuration")
	if at := routes.Field("gateway"); at.Exists() && !strings.Contains(at.Text, "/") {
		return &NoEffect{
			at, fmt.Sprintf("istiod compares gateway with NAMESPACE/NAME, so %s matches none: write NAMESPACE/NAME", at.Describe()), rules.Error,
		}
	}
	at := routes.At("vhost", "name")
	if form := hostNameForms[p.Context]; at.Text == "" || form == nil || form.MatchString(at.Text) {
		return nil
	}
	want := fmt.Sprintf("host:port, such as %q", rules.Shorten(at.Text)+":80")
	if p.Context == inbound {
		want = "such as inbound|http|8080"
	}
	return &NoEffect{
		at, fmt.Sprintf("no virtual host has the name %s, and istiod compares names exactly: names are %s; without a name the patch applies to all virtual hosts", at.Describe(), want), rules.Error,
	}
}
