package api

import (
	"net/netip"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// semantics are the rules that Envoy has only in its code, by message.
var semantics = map[string]func(j *Judge, n *tree.Node){
	RateLimit: ownPolicies, RateLimitPerRoute: ownPolicies,
	"envoy.config.route.v3.RateLimit.HitsAddend": func(j *Judge, n *tree.Node) {
		j.alone(n, "number", "format")
		if at := n.Field("format"); at.Text != "" && len(aCommand.FindString(at.Text)) != len(at.Text) {
			j.Reject(at, "%s: found %s, want one command, such as %%BYTES_RECEIVED%%", at.Name, at.Shown())
		}
	},
	"envoy.config.ratelimit.v3.RateLimitServiceConfig": transport("transport_api_version"),
	"envoy.config.core.v3.ApiConfigSource":             transport("transport_api_version"),
	"envoy.config.core.v3.ConfigSource":                transport("resource_api_version"),
	"envoy.type.matcher.v3.RegexMatcher":               regex, "xds.type.matcher.v3.RegexMatcher": regex,
	"envoy.config.core.v3.CidrRange": address("address_prefix"), "xds.core.v3.CidrRange": address("address_prefix"),
}

// alone rejects more than one of fields.
func (j *Judge) alone(n *tree.Node, fields ...string) {
	var there []string
	for _, field := range fields {
		if at := n.Field(field); !isEmpty(at) && at.There() {
			there = append(there, field)
		}
	}
	if len(there) > 1 {
		j.Reject(n, "Envoy takes %s alone: leave out all but one", strings.Join(there, " or "))
	}
}

// ownPolicies rejects stages in the rate_limits of a filter, which Envoy takes from routes and virtual hosts only.
func ownPolicies(j *Judge, n *tree.Node) {
	for element := range n.Field("rate_limits").Elements() {
		for _, name := range []string{"stage", "disable_key"} {
			if at := element.Field(name); at.There() && at.Text != "" && at.Text != "0" {
				j.Reject(at, "Envoy %v takes no %s in the rate_limits of a filter, and rejects it: leave it out", newest, at.Name)
			}
		}
	}
}

var aCommand = regexp.MustCompile(`(?s)^%[A-Z0-9_]+(\(.*?\))?(:[0-9]+)?%`)

// transport rejects the v2 API.
func transport(name string) func(j *Judge, n *tree.Node) {
	return func(j *Judge, n *tree.Node) {
		if at := n.Field(name); strings.EqualFold(at.Text, "V2") || at.Text == "1" {
			j.Reject(at, "%s: found %s, want AUTO or V3", at.Name, at.Shown())
		}
	}
}

// regex rejects what RE2 cannot read. It has \C, which Go lacks.
func regex(j *Judge, n *tree.Node) {
	at := n.Field("regex")
	if _, err := syntax.Parse(at.Text, syntax.Perl); err != nil && !strings.Contains(at.Text, `\C`) {
		j.Reject(at, "%s: found %s, want a regular expression", at.Name, at.Shown())
	}
}

// address rejects what is not an IP address.
func address(name string) func(j *Judge, n *tree.Node) {
	return func(j *Judge, n *tree.Node) {
		at := n.Field(name)
		if _, err := netip.ParseAddr(at.Text); at.There() && at.Text != "" && err != nil {
			j.Reject(at, "%s: found %s, want an IP address", at.Name, at.Shown())
		}
	}
}
