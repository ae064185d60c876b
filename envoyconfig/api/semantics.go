package api

import (
	"net/netip"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// semantics are the rules that Envoy has only in its code, by message.
var semantics = map[string]func(j *Judge, n *tree.Node){
	RateLimit:         all(judgeOwnPolicies, judgeHeaders),
	RateLimitPerRoute: judgeOwnPolicies,
	LocalRateLimit:    all(judgeLocalRateLimit, judgeHeaders),
	"envoy.extensions.filters.http.header_to_metadata.v3.Config": judgeHeaderToMetadata,
	"envoy.config.route.v3.RateLimit.HitsAddend": func(j *Judge, n *tree.Node) {
		if at := n.Field("format"); at.Text != "" && len(patterns.get(aCommand).FindString(at.Text)) != len(at.Text) {
			j.Reject(at, "%s: found %s, want one command, such as %%BYTES_RECEIVED%%", at.Name, at.Shown())
		}
	},

	RouteTable:  all(judgeDomains, judgeHeaders),
	VirtualHost: judgeHeaders,
	Route:       judgeHeaders,
	"envoy.config.route.v3.RouteAction": func(j *Judge, n *tree.Node) {
		j.alone(n, "prefix_rewrite", "regex_rewrite", "path_rewrite_policy")
		j.unique(n.Field("upgrade_configs"), strings.ToLower, "upgrade_type")
	},
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy": exactlyOne("cluster", "cluster_header"),
	"envoy.config.route.v3.WeightedCluster":                 judgeWeights,
	"envoy.config.route.v3.WeightedCluster.ClusterWeight":   all(exactlyOne("name", "cluster_header"), judgeHeaders),
	"envoy.config.route.v3.RetryPolicy.RetryBackOff": func(j *Judge, n *tree.Node) {
		if most := n.Field("max_interval"); most.There() && amount(most.Text) < amount(n.Field("base_interval").Text) {
			j.Reject(most, "%s: found %s, want no less than base_interval", most.Name, most.Shown())
		}
	},
	"envoy.config.core.v3.HeaderValueOption": func(j *Judge, n *tree.Node) {
		if action := n.Field("append_action"); action.Enum("APPEND_IF_EXISTS_OR_ADD") != "APPEND_IF_EXISTS_OR_ADD" {
			j.alone(n, "append", "append_action")
		}
	},

	ConnectionManager: judgeManager,
	httpFilter:        judgeHTTPFilter,
	Listener:          judgeListener,
	"envoy.config.listener.v3.ListenerFilter":   extension("envoy.extensions.filters.listener."),
	"envoy.config.listener.v3.Filter":           extension(networkFilters),
	"envoy.config.accesslog.v3.AccessLog":       extension("envoy.extensions.access_loggers."),
	"envoy.config.core.v3.TransportSocket":      extension(transportSockets),
	"envoy.config.overload.v3.ResourceMonitor":  extension("envoy.extensions.resource_monitors."),
	"envoy.config.listener.v3.FilterChainMatch": judgeServerNames,
	"envoy.config.core.v3.SubstitutionFormatString": func(j *Judge, n *tree.Node) {
		for _, at := range []*tree.Node{n.Field("text_format"), n.At("text_format_source", "inline_string")} {
			j.format(at)
		}
	},

	Bootstrap: judgeBootstrap,
	Cluster:   judgeCluster,
	"envoy.config.core.v3.HealthCheck.HttpHealthCheck": judgeStatuses,
	"envoy.config.core.v3.ApiConfigSource":             transport,
	"envoy.config.core.v3.ConfigSource":                judgeConfigSource,
	"envoy.config.ratelimit.v3.RateLimitServiceConfig": transport,
	"envoy.type.matcher.v3.RegexMatcher":               regex,
	"xds.type.matcher.v3.RegexMatcher":                 regex,
	"envoy.config.core.v3.CidrRange":                   address("address_prefix"),
	"xds.core.v3.CidrRange":                            address("address_prefix"),
}

// all has each of several rules judge a message.
func all(each ...func(j *Judge, n *tree.Node)) func(j *Judge, n *tree.Node) {
	return func(j *Judge, n *tree.Node) {
		for _, judge := range each {
			judge(j, n)
		}
	}
}

// alone rejects more than one of fields.
func (j *Judge) alone(n *tree.Node, fields ...string) {
	if there := j.present(n, fields); len(there) > 1 {
		j.Reject(n, "Envoy takes %s alone: leave out all but one", strings.Join(there, " or "))
	}
}

// exactlyOne rejects none, and more than one, of fields.
func exactlyOne(fields ...string) func(j *Judge, n *tree.Node) {
	return func(j *Judge, n *tree.Node) {
		j.alone(n, fields...)
		if len(j.present(n, fields)) == 0 && !j.part {
			j.Reject(n, "Envoy needs one of %s", strings.Join(fields, ", "))
		}
	}
}

// present returns those of fields that are set.
func (j *Judge) present(n *tree.Node, fields []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(field string) bool {
		at := n.Field(field)
		return !at.There() || isEmpty(at)
	})
}

// unique rejects elements of a list that have the same text in a field. Normal returns the text that is compared.
func (j *Judge) unique(list *tree.Node, normal func(string) string, field string) {
	seen := map[string]bool{}
	for n := range list.Elements() {
		at := n.Field(field)
		if text := normal(at.Text); at.There() && seen[text] {
			j.Reject(at, "%s: %s is there twice, and Envoy rejects that: leave one out", at.Name, at.Shown())
		} else {
			seen[text] = true
		}
	}
}

func asItIs(text string) string { return text }

// judgeOwnPolicies judges the rate_limits of a filter, which have no stages.
func judgeOwnPolicies(j *Judge, n *tree.Node) {
	for element := range n.Field("rate_limits").Elements() {
		j.alone(element.Field("hits_addend"), "number", "format")
		for _, name := range []string{"stage", "disable_key"} {
			if at := element.Field(name); !isEmpty(at) && at.There() && at.Text != "0" {
				j.Reject(at, "Envoy %v takes no %s in the rate_limits of a filter, and rejects it: leave it out", newest, at.Name)
			}
		}
	}
}

func judgeLocalRateLimit(j *Judge, n *tree.Node) {
	const least = 0.05 // seconds
	if at := n.At("token_bucket", "fill_interval"); at.There() && amount(at.Text) < least {
		j.Reject(at, "%s: found %s, want seconds from 0.05s on", at.Name, at.Shown())
	}
}

func judgeHeaderToMetadata(j *Judge, n *tree.Node) {
	for _, list := range []string{"request_rules", "response_rules"} {
		for rule := range n.Field(list).Elements() {
			exactlyOne("header", "cookie")(j, rule)
			if !rule.Field("on_header_present").There() && !rule.Field("on_header_missing").There() {
				j.Reject(rule, "Envoy needs one of on_header_present, on_header_missing")
			}
			if missing := rule.Field("on_header_missing"); missing.There() && missing.Field("value").Text == "" {
				j.Reject(missing, "%s: Envoy rejects it without value: add it", missing.Name)
			}
		}
	}
}

// judgeDomains rejects a domain that stands twice in a table.
func judgeDomains(j *Judge, n *tree.Node) {
	seen := map[string]bool{}
	for host := range n.Field("virtual_hosts").Elements() {
		for at := range host.Field("domains").Elements() {
			domain := strings.ToLower(at.Text)
			if seen[domain] {
				j.Reject(at, "the domain %s is there twice, and Envoy rejects that: leave one out", at.Shown())
			}
			seen[domain] = true
		}
	}
}

// judgeWeights rejects weights that add up to nothing or too much.
func judgeWeights(j *Judge, n *tree.Node) {
	sum := uint64(0)
	for cluster := range n.Field("clusters").Elements() {
		if !cluster.Field("weight").There() && !j.part {
			j.missing(cluster, messages.get("envoy.config.route.v3.WeightedCluster.ClusterWeight"), "Envoy rejects it without weight: add it")
			return
		}
		sum += cluster.Field("weight").Uint(0)
	}
	if clusters := n.Field("clusters"); len(clusters.Nodes) > 0 && (sum == 0 || sum >= 1<<32) {
		j.Reject(clusters, "the weights add up to %d, and Envoy rejects that: want 1 to 4294967295", sum)
	}
}

// judgeHeaders judges the headers that a route, or a part of one, adds and removes.
func judgeHeaders(j *Judge, n *tree.Node) {
	for _, list := range []string{"request_headers_to_add", "response_headers_to_add"} {
		for option := range n.Field(list).Elements() {
			j.changeable(option.At("header", "key"))
			j.format(option.At("header", "value"))
		}
	}
	for at := range n.Field("request_headers_to_remove").Elements() {
		j.changeable(at)
	}
}

// changeable rejects headers that a route cannot change.
func (j *Judge) changeable(at *tree.Node) {
	if strings.HasPrefix(at.Text, ":") || strings.EqualFold(at.Text, "host") {
		j.Reject(at, "the header %s cannot be changed here, and Envoy rejects it: leave it out", at.Shown())
	}
}

const (
	// aCommand is a command of a format string.
	aCommand = `(?s)^%[A-Z0-9_]+(\(.*?\))?(:[0-9]+)?%`
	// needsParameter are commands that name a header or the like in brackets.
	needsParameter = `^%(REQ|RESP|TRAILER|QUERY_PARAM|COMMON_DURATION|ENVIRONMENT)(:[0-9]+)?%$`
)

// format rejects a text that Envoy cannot read as a format string.
func (j *Judge) format(at *tree.Node) {
	for text := at.Text; ; {
		i := strings.IndexByte(text, '%')
		if i < 0 {
			return
		}
		text = text[i:]
		command := patterns.get(aCommand).FindString(text)
		switch {
		case strings.HasPrefix(text, "%%"):
			command = "%%"
		case command == "":
			j.Reject(at, "%s: found %s, which is no command at %s: write %%%% for a percent sign", at.Name, at.Shown(), rules.Shorten(text))
			return
		case patterns.get(needsParameter).MatchString(command):
			j.Reject(at, "%s: %s needs a parameter in brackets", at.Name, command)
		}
		text = text[len(command):]
	}
}

// transport rejects the v2 API.
func transport(j *Judge, n *tree.Node) {
	if at := n.Field("transport_api_version"); strings.EqualFold(at.Text, "V2") || at.Text == "1" {
		j.Reject(at, "%s: found %s, want AUTO or V3", at.Name, at.Shown())
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
func address(field string) func(j *Judge, n *tree.Node) {
	return func(j *Judge, n *tree.Node) {
		if at := n.Field(field); at.There() && at.Text != "" && !isAddress(at) {
			j.Reject(at, "%s: found %s, want an IP address", at.Name, at.Shown())
		}
	}
}

func isAddress(at *tree.Node) bool {
	_, err := netip.ParseAddr(at.Text)
	return err == nil
}
