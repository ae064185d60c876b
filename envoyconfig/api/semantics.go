package api

import (
	"net/netip"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// semantics are the rules that exist only in Envoy's code, by message.
var semantics = map[string]func(val *Validator, n *tree.Node){
	RateLimit:         combine(validateOwnPolicies, validateHeaders),
	RateLimitPerRoute: validateOwnPolicies,
	LocalRateLimit:    combine(validateLocalRateLimit, validateHeaders),
	"envoy.extensions.filters.http.header_to_metadata.v3.Config": validateHeaderToMetadata,
	"envoy.config.route.v3.RateLimit.HitsAddend": func(val *Validator, n *tree.Node) {
		if at := n.Field("format"); at.Text != "" && len(patterns.get(commandPattern).FindString(at.Text)) != len(at.Text) {
			val.Reject(at, "%s: found %s, want one command, such as %%BYTES_RECEIVED%%", at.Name, at.Describe())
		}
	},

	RouteTable:  combine(validateDomains, validateHeaders),
	VirtualHost: validateHeaders,
	Route:       validateHeaders,
	"envoy.config.route.v3.RouteAction": func(val *Validator, n *tree.Node) {
		val.requireAtMostOne(n, "prefix_rewrite", "regex_rewrite", "path_rewrite_policy")
		val.rejectDuplicates(n.Field("upgrade_configs"), strings.ToLower, "upgrade_type")
	},
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy": requireExactlyOne("cluster", "cluster_header"),
	"envoy.config.route.v3.WeightedCluster":                 validateWeights,
	"envoy.config.route.v3.WeightedCluster.ClusterWeight":   combine(requireExactlyOne("name", "cluster_header"), validateHeaders),
	"envoy.config.route.v3.RetryPolicy.RetryBackOff": func(val *Validator, n *tree.Node) {
		if most := n.Field("max_interval"); most.Exists() && parseAmount(most.Text) < parseAmount(n.Field("base_interval").Text) {
			val.Reject(most, "%s: found %s, want no less than base_interval", most.Name, most.Describe())
		}
	},
	"envoy.config.core.v3.HeaderValueOption": func(val *Validator, n *tree.Node) {
		if action := n.Field("append_action"); action.Enum("APPEND_IF_EXISTS_OR_ADD") != "APPEND_IF_EXISTS_OR_ADD" {
			val.requireAtMostOne(n, "append", "append_action")
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
	"envoy.config.core.v3.SubstitutionFormatString": func(val *Validator, n *tree.Node) {
		for _, at := range []*tree.Node{n.Field("text_format"), n.At("text_format_source", "inline_string")} {
			val.validateFormat(at)
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

// combine returns a rule that applies each of the given rules.
func combine(each ...func(val *Validator, n *tree.Node)) func(val *Validator, n *tree.Node) {
	return func(val *Validator, n *tree.Node) {
		for _, validate := range each {
			validate(val, n)
		}
	}
}

// requireAtMostOne rejects a message with more than one of the fields.
func (val *Validator) requireAtMostOne(n *tree.Node, fields ...string) {
	if present := val.presentFields(n, fields); len(present) > 1 {
		val.Reject(n, "Envoy accepts only one of %s: remove the others", strings.Join(present, ", "))
	}
}

// requireExactlyOne rejects a message with none or more than one of the fields.
func requireExactlyOne(fields ...string) func(val *Validator, n *tree.Node) {
	return func(val *Validator, n *tree.Node) {
		val.requireAtMostOne(n, fields...)
		if len(val.presentFields(n, fields)) == 0 && !val.partial {
			val.Reject(n, "Envoy requires one of %s", strings.Join(fields, ", "))
		}
	}
}

// presentFields returns the fields that are set.
func (val *Validator) presentFields(n *tree.Node, fields []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(field string) bool {
		at := n.Field(field)
		return !at.Exists() || isEmpty(at)
	})
}

// rejectDuplicates rejects elements of a list whose texts in a field are equal after normalize is applied.
func (val *Validator) rejectDuplicates(list *tree.Node, normalize func(string) string, field string) {
	seen := map[string]bool{}
	for n := range list.Elements() {
		at := n.Field(field)
		if text := normalize(at.Text); at.Exists() && seen[text] {
			val.Reject(at, "%s: %s appears twice, and Envoy rejects that: remove one", at.Name, at.Describe())
		} else {
			seen[text] = true
		}
	}
}

func identity(text string) string { return text }

// validateOwnPolicies validates the rate_limits of a filter, which cannot have stages.
func validateOwnPolicies(val *Validator, n *tree.Node) {
	for element := range n.Field("rate_limits").Elements() {
		val.requireAtMostOne(element.Field("hits_addend"), "number", "format")
		for _, name := range []string{"stage", "disable_key"} {
			if at := element.Field(name); !isEmpty(at) && at.Exists() && at.Text != "0" {
				val.Reject(at, "Envoy %v rejects %s in the rate_limits of a filter: remove it", schemaRelease, at.Name)
			}
		}
	}
}

func validateLocalRateLimit(val *Validator, n *tree.Node) {
	const least = 0.05 // seconds
	if at := n.At("token_bucket", "fill_interval"); at.Exists() && parseAmount(at.Text) < least {
		val.Reject(at, "%s: found %s, want 0.05s or more", at.Name, at.Describe())
	}
}

func validateHeaderToMetadata(val *Validator, n *tree.Node) {
	for _, list := range []string{"request_rules", "response_rules"} {
		for rule := range n.Field(list).Elements() {
			requireExactlyOne("header", "cookie")(val, rule)
			if !rule.Field("on_header_present").Exists() && !rule.Field("on_header_missing").Exists() {
				val.Reject(rule, "Envoy requires one of on_header_present, on_header_missing")
			}
			if missing := rule.Field("on_header_missing"); missing.Exists() && missing.Field("value").Text == "" {
				val.Reject(missing, "%s: Envoy requires value: add it", missing.Name)
			}
		}
	}
}

// validateDomains rejects duplicate domains in a route configuration.
func validateDomains(val *Validator, n *tree.Node) {
	seen := map[string]bool{}
	for host := range n.Field("virtual_hosts").Elements() {
		for at := range host.Field("domains").Elements() {
			domain := strings.ToLower(at.Text)
			if seen[domain] {
				val.Reject(at, "the domain %s appears twice, and Envoy rejects that: remove one", at.Describe())
			}
			seen[domain] = true
		}
	}
}

// validateWeights rejects weights whose sum is 0 or does not fit into 32 bits.
func validateWeights(val *Validator, n *tree.Node) {
	sum := uint64(0)
	for cluster := range n.Field("clusters").Elements() {
		if !cluster.Field("weight").Exists() && !val.partial {
			val.reportMissing(cluster, messages.get("envoy.config.route.v3.WeightedCluster.ClusterWeight"), "Envoy requires weight: add it")
			return
		}
		sum += cluster.Field("weight").Uint(0)
	}
	if clusters := n.Field("clusters"); len(clusters.Nodes) > 0 && (sum == 0 || sum >= 1<<32) {
		val.Reject(clusters, "the weights add up to %d, and Envoy rejects that: want 1 to 4294967295", sum)
	}
}

// validateHeaders validates the headers that a route, or a part of one, adds and removes.
func validateHeaders(val *Validator, n *tree.Node) {
	for _, list := range []string{"request_headers_to_add", "response_headers_to_add"} {
		for option := range n.Field(list).Elements() {
			val.validateChangedHeader(option.At("header", "key"))
			val.validateFormat(option.At("header", "value"))
		}
	}
	for at := range n.Field("request_headers_to_remove").Elements() {
		val.validateChangedHeader(at)
	}
}

// validateChangedHeader rejects headers that a route cannot change.
func (val *Validator) validateChangedHeader(at *tree.Node) {
	if strings.HasPrefix(at.Text, ":") || strings.EqualFold(at.Text, "host") {
		val.Reject(at, "the header %s cannot be changed here, and Envoy rejects it: remove it", at.Describe())
	}
}

const (
	// commandPattern matches a command of a format string.
	commandPattern = `(?s)^%[A-Z0-9_]+(\(.*?\))?(:[0-9]+)?%`
	// parameterPattern matches commands that require a parameter, such as the name of a header.
	parameterPattern = `^%(REQ|RESP|TRAILER|QUERY_PARAM|COMMON_DURATION|ENVIRONMENT)(:[0-9]+)?%$`
)

// validateFormat rejects a text that is not a valid format string.
func (val *Validator) validateFormat(at *tree.Node) {
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
			val.Reject(at, "%s: found %s, which is not a valid command at %s: write %%%% for a percent sign", at.Name, at.Describe(), rules.Shorten(text))
			return
		case patterns.get(parameterPattern).MatchString(command):
			val.Reject(at, "%s: %s needs a parameter in brackets", at.Name, command)
		}
		text = text[len(command):]
	}
}

// rejectV2 rejects transport_api_version V2.
func rejectV2(val *Validator, n *tree.Node) {
	if at := n.Field("transport_api_version"); strings.EqualFold(at.Text, "V2") || at.Text == "1" {
		val.Reject(at, "%s: found %s, want AUTO or V3", at.Name, at.Describe())
	}
}

// validateRegex rejects expressions that RE2 cannot compile. RE2 supports \C, which Go does not.
func validateRegex(val *Validator, n *tree.Node) {
	at := n.Field("regex")
	if _, err := syntax.Parse(at.Text, syntax.Perl); err != nil && !strings.Contains(at.Text, `\C`) {
		val.Reject(at, "%s: found %s, want a regular expression", at.Name, at.Describe())
	}
}

// validateAddress rejects values that are not IP addresses.
func validateAddress(field string) func(val *Validator, n *tree.Node) {
	return func(val *Validator, n *tree.Node) {
		if at := n.Field(field); at.Exists() && at.Text != "" && !isAddress(at) {
			val.Reject(at, "%s: found %s, want an IP address", at.Name, at.Describe())
		}
	}
}

func isAddress(at *tree.Node) bool {
	_, err := netip.ParseAddr(at.Text)
	return err == nil
}
