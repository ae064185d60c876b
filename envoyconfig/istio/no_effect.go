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
	switch {
	case !slices.Contains(targets[p.ApplyTo].operations, p.Operation):
		why := fmt.Sprintf("istiod ignores %s for applyTo: %s: write %s", p.Operation, p.ApplyTo, targets[p.ApplyTo].usual)
		return &NoEffect{operation, why, rules.Error}
	case p.ApplyTo == HTTPFilter:
		return p.filterWithoutEffect(all, operation)
	default:
		return p.routesWithoutEffect()
	}
}

// filterWithoutEffect is NoEffect for an HTTP filter.
func (p *Patch) filterWithoutEffect(all []*Patch, operation *tree.Node) *NoEffect {
	const connectionManager = "envoy.filters.network.http_connection_manager"
	name := p.match.At("listener", "filter_chain", "filter", "name")
	sub := p.subFilter()
	isGenerated := slices.Contains(generatedFilters, sub.Text)
	isAdded := func(o *Patch) bool { return o.ApplyTo == HTTPFilter && o.Value.Field("name").Text == sub.Text }
	switch {
	case name.Exists() && name.Text != connectionManager:
		why := fmt.Sprintf("Istio has no connection manager named %s, so the patch does nothing: write %s", name.Describe(), connectionManager)
		return &NoEffect{name, why, rules.Error}
	case p.Operation == replace && !sub.Exists():
		return &NoEffect{operation, "istiod ignores REPLACE without subFilter: name the filter to replace", rules.Error}
	case p.Operation == merge && (isGenerated || !sub.Exists()):
		return &NoEffect{operation, "MERGE changes existing filters and adds none: write INSERT_BEFORE", rules.Error}
	case !sub.Exists(), isGenerated, slices.ContainsFunc(all, isAdded):
		return nil
	}
	severity := rules.Warning
	near := rules.DidYouMean(sub.Text, generatedFilters)
	if near != "" || strings.HasPrefix(sub.Text, "envoy.") && !strings.HasPrefix(sub.Text, "envoy.filters.http.") {
		severity = rules.Error
	}
	why := fmt.Sprintf("Istio adds no filter named %s, and no patch in these files does: unless something else adds it, this patch does nothing: write %s%s", sub.Describe(), Router, near)
	return &NoEffect{sub, why, severity}
}

// routesWithoutEffect reports names that no virtual host and no gateway of Istio has.
func (p *Patch) routesWithoutEffect() *NoEffect {
	routes := p.match.Field("route_configuration")
	if at := routes.Field("gateway"); at.Exists() && !strings.Contains(at.Text, "/") {
		why := fmt.Sprintf("istiod compares gateway with NAMESPACE/NAME, so %s matches none: write NAMESPACE/NAME", at.Describe())
		return &NoEffect{at, why, rules.Error}
	}
	at := routes.At("vhost", "name")
	if form := hostNameForms[p.Context]; at.Text == "" || form == nil || form.MatchString(at.Text) {
		return nil
	}
	why := fmt.Sprintf("no virtual host has the name %s, and istiod compares names exactly: names are host:port or, for SIDECAR_INBOUND, such as inbound|http|8080; without a name the patch applies to all virtual hosts", at.Describe())
	return &NoEffect{at, why, rules.Error}
}
