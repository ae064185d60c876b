package envoygateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Rules returns the rules that Envoy Gateway makes from the objects, with diagnostics. It is an
// error if there are none, unless found is true, which means that other rules were found.
func (o *Objects) Rules(found bool) ([]rules.Config, rules.Diagnostics) {
	if !slices.ContainsFunc(o.policies, func(p *policy) bool { return p.limits != nil }) {
		o.reportNone(found)
		return nil, o.diagnostics
	}
	routes := o.envoyRoutes()
	slices.SortStableFunc(o.policies, func(a, b *policy) int { return a.Metadata.compare(&b.Metadata) })
	o.attach(routes)
	if len(o.unread) > 0 {
		o.warn(o.unreadAt, "not supported, so rules may be missing: %s; sluice explain --addr shows the rules that Envoy Gateway sends",
			rules.Shorten(strings.Join(o.unread, ", ")))
	}
	var t tree
	for _, r := range routes {
		t.add(r)
	}
	if len(t.configs) == 0 && !found && !o.diagnostics.HasErrors() {
		o.fail(o.policies[0].Metadata.pos, "no rules in these objects; add the Gateways and routes that "+
			"the BackendTrafficPolicies target: kubectl get backendtrafficpolicies,gateways,httproutes,grpcroutes,namespaces -A -o yaml")
	}
	if len(t.configs) > 0 {
		o.diagnostics = append(o.diagnostics, rules.Diagnostic{
			Pos: t.configs[0].Pos, Severity: rules.Note,
			Message: "rules as of Envoy Gateway 1.6 to 1.9; sluice serve receives them over xDS (--xds-addr) and does not read these objects",
		})
	}
	return t.configs, append(o.diagnostics, t.diagnostics...)
}

func (o *Objects) reportNone(found bool) {
	remedy := "give sluice the file or the ConfigMap that contains them, or a BackendTrafficPolicy with rateLimit.global"
	if len(o.policies) > 0 {
		remedy = "no BackendTrafficPolicy given has rateLimit.global"
	}
	message := fmt.Sprintf("no rules in this %s: %s", o.first, remedy)
	switch {
	case o.first == "" || found && len(o.policies)+len(o.gateways)+len(o.routes) == 0:
		// Such as a Namespace next to a ConfigMap with rules.
	case found:
		o.diagnostics = append(o.diagnostics, rules.Diagnostic{Pos: o.firstAt, Severity: rules.Note, Message: message})
	default:
		o.fail(o.firstAt, "%s", message)
	}
}

// tree collects rules.
type tree struct {
	configs     []rules.Config
	diagnostics rules.Diagnostics
}

func (t *tree) add(r *envoyRoute) {
	numbers := map[bool]int{} // shared rules are numbered separately
	for _, l := range r.limits {
		domain := r.listener.domain()
		key := r.name
		if l.shared {
			domain = l.policy
			key = l.name
		}
		d := l.chain(numbers[l.shared])
		numbers[l.shared]++
		below := t.below(domain, key, l)
		same := slices.IndexFunc(*below, func(other rules.Descriptor) bool { return equal(&other, &d) })
		if same < 0 {
			*below = append(*below, d)
			continue
		}
		if at := (*below)[same].Pos; at != l.pos {
			t.diagnostics = append(t.diagnostics, rules.Diagnostic{
				Pos: l.pos, Severity: rules.Warning, Code: rules.NoEffect, Path: rules.DomainPath(domain),
				Message: fmt.Sprintf("Envoy Gateway drops this rule, since its descriptors equal those of the rule at %s", at),
			})
		}
	}
}

// domain returns the domain that Envoy Gateway uses for a listener.
func (l *listener) domain() string { return l.gateway.String() + "/" + l.Name }

// below returns the descriptors below an entry at the root of a domain.
func (t *tree) below(domain, key string, l *limit) *[]rules.Descriptor {
	i := slices.IndexFunc(t.configs, func(c rules.Config) bool { return c.Domain == domain })
	if i < 0 {
		i = len(t.configs)
		t.configs = append(t.configs, rules.Config{Pos: l.pos, Domain: domain})
	}
	all := &t.configs[i].Descriptors
	j := slices.IndexFunc(*all, func(d rules.Descriptor) bool { return d.Key == key })
	if j < 0 {
		j = len(*all)
		*all = append(*all, rules.Descriptor{Pos: l.pos, Key: key, Value: key})
	}
	return &(*all)[j].Descriptors
}

// equal reports whether descriptors are equal to Envoy Gateway, which does not compare limits.
func equal(a, b *rules.Descriptor) bool {
	return a.Key == b.Key && a.Value == b.Value &&
		slices.EqualFunc(a.Descriptors, b.Descriptors, func(a, b rules.Descriptor) bool { return equal(&a, &b) })
}
