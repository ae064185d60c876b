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
var semantics = map[string]func(j *Validator, n *tree.Node){
	RateLimit:         combine(validateOwnPolicies, validateHeaders),
	RateLimitPerRoute: validateOwnPolicies,
	LocalRateLimit:    combine(validateLocalRateLimit, validateHeaders),
	"envoy.extensions.filters.http.header_to_metadata.v3.Config": validateHeaderToMetadata,
	"envoy.config.route.v3.RateLimit.HitsAddend": func(j *Validator, n *tree.Node) {
		if at := n.Field("format"); at.Text != "" && len(patterns.get(commandPattern).FindString(at.Text)) != len(at.Text) {
			j.Reject(at, "%s: found %s, want one command, such as %%BYTES_RECEIVED%%", at.Name, at.Describe())
		}
	},

	RouteTable:  combine(validateDomains, validateHeaders),
	VirtualHost: validateHeaders,
	Route:       validateHeaders,
	"envoy.config.route.v3.RouteAction": func(j *Validator, n *tree.Node) {
		j.requireAtMostOne(n, "prefix_rewrite", "regex_rewrite", "path_rewrite_policy")
		j.rejectDuplicates(n.Field("upgrade_configs"), strings.ToLower, "upgrade_type")
	},
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy": requireExactlyOne("cluster", "cluster_header"),
	"envoy.config.route.v3.WeightedCluster":                 validateWeights,
	"envoy.config.route.v3.WeightedCluster.ClusterWeight":   combine(requireExactlyOne("name", "cluster_header"), validateHeaders),
	"envoy.config.route.v3.RetryPolicy.RetryBackOff": func(j *Validator, n *tree.Node) {
		if most := n.Field("max_interval"); most.Exists() && parseAmount(most.Text) < parseAmount(n.Field("base_interval").Text) {
			j.Reject(most, "%s: found %s, want no less than base_interval", most.Name, most.Describe())
		}
	},
	"envoy.config.core.v3.HeaderValueOption": func(j *Validator, n *tree.Node) {
		if action := n.Field("append_action"); action.Enum("APPEND_IF_EXISTS_OR_ADD") != "APPEND_IF_EXISTS_OR_ADD" {
			j.requireAtMostOne(n, "append", "append_action")
		}
	},

	ConnectionManager: validateManager,
	httpFilter:        validateHTTPFilter,
	Listener:          validateListener,
	"envoy.config.listener.v3.ListenerFilter":   validateExtension("envoy.extensions.filters.listener."),
	"envoy.config.listener.v3.Filter":           validateExtension(networkFilters),
	"envoy.config.accesslog.v3.AccessLog":       validateExtension("envoy.extensions.access_loggers."),
	"envoy.config.core.v3.TransportSocket":      validateExtension(transportSockets),
	"envoy.config.overload.v3.ResourceMonitor":  validateExtension("envoy.extensions.resource_monitors."),
	"envoy.config.listener.v3.FilterChainMatch": validateServerNames,
	"envoy.config.core.v3.SubstitutionFormatString": func(j *Validator, n *tree.Node) {
		for _, at := range []*tree.Node{n.Field("text_format"), n.At("text_format_source", "inline_string")} {
			j.validateFormat(at)
		}
	},

	Bootstrap: validateBootstrap,
	Cluster:   validateCluster,
	"envoy.config.core.v3.HealthCheck.HttpHealthCheck": validateStatuses,
	"envoy.config.core.v3.ApiConfigSource":             rejectV2,
	"envoy.config.core.v3.ConfigSource":                validateConfigSource,
	"envoy.config.ratelimit.v3.RateLimitServiceConfig": rejectV2,
	"envoy.type.matcher.v3.RegexMatcher":               validateRegex,
	"xds.type.matcher.v3.RegexMatcher":                 validateRegex,
	"envoy.config.core.v3.CidrRange":                   validateAddress("address_prefix"),
	"xds.core.v3.CidrRange":                            validateAddress("address_prefix"),
}

// combine has each of several rules judge a message.
func combine(each ...func(j *Validator, n *tree.Node)) func(j *Validator, n *tree.Node) {
	return func(j *Validator, n *tree.Node) {
		for _, judge := range each {
			judge(j, n)
		}
	}
}

// requireAtMostOne rejects more than one of fields.
func (j *Validator) requireAtMostOne(n *tree.Node, fields ...string) {
	if there := j.presentFields(n, fields); len(there) > 1 {
		j.Reject(n, "Envoy takes %s alone: leave out all but one", strings.Join(there, " or "))
	}
}

// requireExactlyOne rejects none, and more than one, of fields.
func requireExactlyOne(fields ...string) func(j *Validator, n *tree.Node) {
	return func(j *Validator, n *tree.Node) {
		j.requireAtMostOne(n, fields...)
		if len(j.presentFields(n, fields)) == 0 && !j.partial {
			j.Reject(n, "Envoy needs one of %s", strings.Join(fields, ", "))
		}
	}
}

// presentFields returns those of fields that are set.
func (j *Validator) presentFields(n *tree.Node, fields []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(field string) bool {
		at := n.Field(field)
		return !at.Exists() || isEmpty(at)
	})
}

// rejectDuplicates rejects elements of a list that have the same text in a field. Normal returns the text that is compared.
func (j *Validator) rejectDuplicates(list *tree.Node, normal func(string) string, field string) {
	seen := map[string]bool{}
	for n := range list.Elements() {
		at := n.Field(field)
		if text := normal(at.Text); at.Exists() && seen[text] {
			j.Reject(at, "%s: %s is there twice, and Envoy rejects that: leave one out", at.Name, at.Describe())
		} else {
			seen[text] = true
		}
	}
}

func identity(text string) string { return text }

// validateOwnPolicies judges the rate_limits of a filter, which have no stages.
func validateOwnPolicies(j *Validator, n *tree.Node) {
	for element := range n.Field("rate_limits").Elements() {
		j.requireAtMostOne(element.Field("hits_addend"), "number", "format")
		for _, name := range []string{"stage", "disable_key"} {
			if at := element.Field(name); !isEmpty(at) && at.Exists() && at.Text != "0" {
				j.Reject(at, "Envoy %v takes no %s in the rate_limits of a filter, and rejects it: leave it out", schemaRelease, at.Name)
			}
		}
	}
}

func validateLocalRateLimit(j *Validator, n *tree.Node) {
	const least = 0.05 // seconds
	if at := n.At("token_bucket", "fill_interval"); at.Exists() && parseAmount(at.Text) < least {
		j.Reject(at, "%s: found %s, want seconds from 0.05s on", at.Name, at.Describe())
	}
}

func validateHeaderToMetadata(j *Validator, n *tree.Node) {
	for _, list := range []string{"request_rules", "response_rules"} {
		for rule := range n.Field(list).Elements() {
			requireExactlyOne("header", "cookie")(j, rule)
			if !rule.Field("on_header_present").Exists() && !rule.Field("on_header_missing").Exists() {
				j.Reject(rule, "Envoy needs one of on_header_present, on_header_missing")
			}
			if missing := rule.Field("on_header_missing"); missing.Exists() && missing.Field("value").Text == "" {
				j.Reject(missing, "%s: Envoy rejects it without value: add it", missing.Name)
			}
		}
	}
}

// validateDomains rejects a domain that stands twice in a table.
func validateDomains(j *Validator, n *tree.Node) {
	seen := map[string]bool{}
	for host := range n.Field("virtual_hosts").Elements() {
		for at := range host.Field("domains").Elements() {
			domain := strings.ToLower(at.Text)
			if seen[domain] {
				j.Reject(at, "the domain %s is there twice, and Envoy rejects that: leave one out", at.Describe())
			}
			seen[domain] = true
		}
	}
}

// validateWeights rejects weights that add up to nothing or too much.
func validateWeights(j *Validator, n *tree.Node) {
	sum := uint64(0)
	for cluster := range n.Field("clusters").Elements() {
		if !cluster.Field("weight").Exists() && !j.partial {
			j.reportMissing(cluster, messages.get("envoy.config.route.v3.WeightedCluster.ClusterWeight"), "Envoy rejects it without weight: add it")
			return
		}
		sum += cluster.Field("weight").Uint(0)
	}
	if clusters := n.Field("clusters"); len(clusters.Nodes) > 0 && (sum == 0 || sum >= 1<<32) {
		j.Reject(clusters, "the weights add up to %d, and Envoy rejects that: want 1 to 4294967295", sum)
	}
}

// validateHeaders judges the headers that a route, or a part of one, adds and removes.
func validateHeaders(j *Validator, n *tree.Node) {
	for _, list := range []string{"request_headers_to_add", "response_headers_to_add"} {
		for option := range n.Field(list).Elements() {
			j.validateChangedHeader(option.At("header", "key"))
			j.validateFormat(option.At("header", "value"))
		}
	}
	for at := range n.Field("request_headers_to_remove").Elements() {
		j.validateChangedHeader(at)
	}
}

// validateChangedHeader rejects headers that a route cannot change.
func (j *Validator) validateChangedHeader(at *tree.Node) {
	if strings.HasPrefix(at.Text, ":") || strings.EqualFold(at.Text, "host") {
		j.Reject(at, "the header %s cannot be changed here, and Envoy rejects it: leave it out", at.Describe())
	}
}

const (
	// commandPattern is a command of a format string.
	commandPattern = `(?s)^%[A-Z0-9_]+(\(.*?\))?(:[0-9]+)?%`
	// parameterPattern are commands that name a header or the like in brackets.
	parameterPattern = `^%(REQ|RESP|TRAILER|QUERY_PARAM|COMMON_DURATION|ENVIRONMENT)(:[0-9]+)?%$`
)

// validateFormat rejects a text that Envoy cannot read as a format string.
func (j *Validator) validateFormat(at *tree.Node) {
	for text := at.Text; ; {
		i := strings.IndexByte(text, '%')
		if i < 0 {
			return
		}
		text = text[i:]
		command := patterns.get(commandPattern).FindString(text)
		switch {
		case strings.HasPrefix(text, "%%"):
			command = "%%"
		case command == "":
			j.Reject(at, "%s: found %s, which is no command at %s: write %%%% for a percent sign", at.Name, at.Describe(), rules.Shorten(text))
			return
		case patterns.get(parameterPattern).MatchString(command):
			j.Reject(at, "%s: %s needs a parameter in brackets", at.Name, command)
		}
		text = text[len(command):]
	}
}

// rejectV2 rejects the v2 API.
func rejectV2(j *Validator, n *tree.Node) {
	if at := n.Field("transport_api_version"); strings.EqualFold(at.Text, "V2") || at.Text == "1" {
		j.Reject(at, "%s: found %s, want AUTO or V3", at.Name, at.Describe())
	}
}

// validateRegex rejects what RE2 cannot read. It has \C, which Go lacks.
func validateRegex(j *Validator, n *tree.Node) {
	at := n.Field("regex")
	if _, err := syntax.Parse(at.Text, syntax.Perl); err != nil && !strings.Contains(at.Text, `\C`) {
		j.Reject(at, "%s: found %s, want a regular expression", at.Name, at.Describe())
	}
}

// validateAddress rejects what is not an IP address.
func validateAddress(field string) func(j *Validator, n *tree.Node) {
	return func(j *Validator, n *tree.Node) {
		if at := n.Field(field); at.Exists() && at.Text != "" && !isAddress(at) {
			j.Reject(at, "%s: found %s, want an IP address", at.Name, at.Describe())
		}
	}
}

func isAddress(at *tree.Node) bool {
	_, err := netip.ParseAddr(at.Text)
	return err == nil
}
