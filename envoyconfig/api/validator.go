package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// ValidationError is an error for a part of a configuration that Envoy rejects or that its API does not have.
type ValidationError struct {
	Pos     rules.Pos
	Message string
}

// Error formats the error as file:line:column: message.
func (f *ValidationError) Error() string { return fmt.Sprintf("%v: %s", f.Pos, f.Message) }

// Validator collects errors for configuration that Envoy would reject. Its zero value is ready to use.
type Validator struct {
	// Errors are the problems for which Envoy rejects the configuration. They are complete after Finish.
	Errors []error
	// Unknown are fields and types that are not in the schema but may exist in the release that wrote a dump.
	Unknown []*ValidationError
	// Running is set while the dump of a running Envoy is validated. Since that Envoy accepted it, only values that
	// cannot be parsed are errors.
	Running bool
	// Strict is set for values parsed by istiod, which does not accept a single value in place of a list.
	Strict bool
	// unknown are fields that the newest release does not have.
	unknown []*ValidationError
	// partial is true while a partial message is validated.
	partial bool
}

// Validate validates a message of the given type before it is read. A message of an unknown type can be any object.
func (val *Validator) Validate(n *tree.Node, message string) {
	val.validateMessage(n, message, "")
}

// ValidatePart validates a partial message, which may lack required fields.
func (val *Validator) ValidatePart(n *tree.Node, message string) {
	val.partial = true
	val.Validate(n, message)
	val.partial = false
}

// Finish completes Errors and Unknown. An unknown field is an error unless an Envoy of another release wrote the dump.
func (val *Validator) Finish(dump Release) {
	if dump != 0 && dump != schemaRelease {
		val.Unknown = append(val.Unknown, val.unknown...)
		return
	}
	for _, f := range val.unknown {
		val.Errors = append(val.Errors, f)
	}
}

// Reject adds an error unless a running Envoy has accepted the configuration.
func (val *Validator) Reject(n *tree.Node, format string, args ...any) {
	if !val.Running {
		val.Errors = append(val.Errors, errorAt(n, format, args...))
	}
}

func errorAt(n *tree.Node, format string, args ...any) *ValidationError {
	return &ValidationError{n.Pos(), fmt.Sprintf(format, args...)}
}

// reportWrongKind adds an error for a value that no Envoy can parse because it has another kind than the field.
func (val *Validator) reportWrongKind(n *tree.Node, label, want string) {
	hint := ""
	if n.Kind == tree.Boolean && tree.IsYAML11Bool(n.Text) {
		hint = ": quote it; unquoted it is a boolean"
	}
	val.Errors = append(val.Errors, errorAt(n, "%sfound %s, want %s%s", label, n.Describe(), want, hint))
}

// validateMessage validates an object. label is the prefix of messages about the object itself.
func (val *Validator) validateMessage(n *tree.Node, name, label string) {
	if n.Kind == tree.Absent || n.Kind == tree.Null {
		return
	}
	if n.Kind != tree.Object {
		val.reportWrongKind(n, label, "an object")
		return
	}
	m := messages()[name]
	if m == nil {
		return
	}
	set := map[*field]*tree.Node{}
	hasUnknown := false
	for child := range n.Fields() {
		f := m.byName[child.Name]
		switch {
		case f == nil && !m.open && child.Name != "@type":
			hasUnknown = true
			val.reportUnknownField(child, m)
		case f != nil:
			if child.Kind != tree.Null {
				set[f] = child
			}
			val.validateField(child, f)
		}
	}
	val.validateOneofs(n, m, set, label, hasUnknown)
	for _, f := range m.fields {
		if at := set[f]; f.required && isEmpty(at) && (at != nil || f.oneof == "") {
			val.reportMissingField(n, f, label)
		}
	}
	if m.name == httpFilter {
		val.validateHTTPFilter(n)
	}
}

// validateOneofs checks that at most one field of each oneof is set, and one of each required oneof.
func (val *Validator) validateOneofs(n *tree.Node, m *message, set map[*field]*tree.Node, label string, hasUnknown bool) {
	members := map[string][]string{}
	for _, f := range m.fields {
		if f.oneof != "" && set[f] != nil {
			members[f.oneof] = append(members[f.oneof], f.name)
		}
	}
	for _, oneof := range slices.Sorted(maps.Keys(members)) {
		if present := members[oneof]; len(present) > 1 {
			val.Reject(n, "%sEnvoy accepts only one of %s: remove the others", label, strings.Join(present, ", "))
		}
	}
	for _, oneof := range m.oneofs {
		if len(members[oneof]) > 0 || val.partial || hasUnknown {
			continue
		}
		var names []string
		for _, f := range m.fields {
			if f.oneof == oneof {
				names = append(names, f.name)
			}
		}
		if len(names) == 1 {
			val.Reject(n, "%sEnvoy requires %s: add it", label, names[0])
			continue
		}
		val.Reject(n, "%sEnvoy requires one of %s", label, strings.Join(names, ", "))
	}
}

// reportMissingField reports a required field that is missing or empty.
func (val *Validator) reportMissingField(n *tree.Node, f *field, label string) {
	text := ""
	switch {
	case val.partial:
		return
	case f.name == "rate_limit_service" && !val.Strict: // excerpts often leave it out, patches of Istio do not
		return
	case f.name == "rate_limit_service":
		text = ", such as rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: ... } } }"
	}
	val.Reject(n, "%sEnvoy requires %s: add it%s", label, f.name, text)
}

// reportUnknownField reports a field that Envoy does not have.
func (val *Validator) reportUnknownField(n *tree.Node, m *message) {
	if val.Running {
		return
	}
	name := tree.SnakeCase(n.Name)
	if elsewhere := misplacedFields[m.name+"."+name]; elsewhere != "" {
		val.unknown = append(val.unknown, errorAt(n, "Envoy %v has no field %s here, and rejects it: put it %s", schemaRelease, rules.Shorten(n.Name), elsewhere))
		return
	}
	hint := ""
	if name == "unit_multiplier" {
		hint = ", or write the limit into the rules, which support it"
	}
	var names []string
	for _, f := range m.fields {
		names = append(names, f.name)
	}
	slices.Sort(names)
	hint += rules.DidYouMean(rules.Nearest(name, names))
	val.unknown = append(val.unknown, errorAt(n, "Envoy %v has no field %s here, and rejects it: remove it%s", schemaRelease, rules.Shorten(n.Name), hint))
}

// misplacedFields maps fields that Envoy does not have to the place where they belong.
var misplacedFields = map[string]string{
	Bootstrap + ".rate_limit_service": "into the rate limit filter; only the v2 API had it here",
	RouteTable + ".rate_limits":       "into a virtual host or a route",
	VirtualHost + ".route":            "into an element of routes; in an EnvoyFilter put its rate_limits into value, or write applyTo: HTTP_ROUTE",
	Route + ".rate_limits":            "below route, next to cluster",
	Cluster + ".hosts":                "into load_assignment, as endpoints; only the v2 API had hosts",
}

// validateField validates the value of a field.
func (val *Validator) validateField(n *tree.Node, f *field) {
	label := n.Name + ": "
	// Merging a part appends the elements of lists and replaces the values of maps, so these must be complete.
	part := val.partial
	val.partial = part && !f.isList && !f.isMap
	defer func() { val.partial = part }()
	switch {
	case n.Kind == tree.Null:
	case f.isList:
		val.validateList(n, f, label)
	case f.isMap && n.Kind != tree.Object:
		val.reportWrongKind(n, label, "an object")
	case f.isMap:
		for child := range n.Fields() {
			val.validateValue(child, f, child.Name+": ")
		}
	default:
		val.validateValue(n, f, label)
	}
}

// validateList validates a list.
func (val *Validator) validateList(n *tree.Node, f *field, label string) {
	if n.Kind != tree.List {
		// Envoy accepts a single value in place of a list.
		if val.Strict || !f.accepts(n) {
			val.reportWrongKind(n, label, "a list of "+f.noun().plural)
			return
		}
		one := *n
		n.Kind, n.Text, n.Nodes = tree.List, "", []tree.Node{one}
	}
	for i := range n.Nodes {
		val.validateValue(&n.Nodes[i], f, label)
	}
}

// validateValue validates one value of a field.
func (val *Validator) validateValue(n *tree.Node, f *field, label string) {
	switch {
	case n.Kind == tree.Null:
	case !f.accepts(n):
		val.reportWrongKind(n, label, f.noun().singular)
	case f.typeName == "Any":
		val.validateAny(n, label)
	case f.isMessage():
		val.validateMessage(n, f.typeName, label)
	}
}

// validateAny validates an object whose @type names its message.
func (val *Validator) validateAny(n *tree.Node, label string) {
	typeName, inner := n.Typed()
	if inner != n && inner.Exists() && inner.Kind != tree.Object {
		val.reportWrongKind(inner, "value: ", "an object")
		return
	}
	if typeName == "" && len(n.Nodes) > 0 {
		val.Reject(n, `%sEnvoy requires "@type", which names the message: add it`, label)
	}
	if messages()[typeName] == nil {
		val.reportUnknownType(n, typeName)
		return
	}
	val.validateMessage(inner, typeName, label)
}

// limiters are the messages of filters that call the service, and of their configuration for routes.
var limiters = []string{RateLimit, RateLimitPerRoute, NetworkRateLimit, RateLimitQuota, QuotaOverride}

// reportUnknownType reports a message whose name seems to be a misspelt name of one of the limiters.
func (val *Validator) reportUnknownType(n *tree.Node, typeName string) {
	const misspelt = 3 // letters
	nearest := ""
	least := misspelt + 1
	for _, name := range limiters {
		if distance := rules.EditDistance(name, typeName); distance < least {
			least, nearest = distance, name
		}
	}
	if strings.HasPrefix(typeName, httpFilters+"ratelimit.") || strings.HasPrefix(typeName, httpFilters+"rate_limit.") {
		nearest = RateLimit
	}
	if nearest != "" && !val.Running {
		val.unknown = append(val.unknown, errorAt(n.Field("@type"), "Envoy %v has no message %s, and rejects it: write type.googleapis.com/%s", schemaRelease, rules.Shorten(typeName), nearest))
	}
}

const httpFilters = "envoy.extensions.filters.http."

// validateHTTPFilter rejects a rate limit filter without typed_config, or whose @type is not that of an HTTP filter.
// Envoy ignores such a filter if it is_optional, but not if it is disabled.
func (val *Validator) validateHTTPFilter(n *tree.Node) {
	typed, name := n.Field("typed_config"), n.Field("name")
	typeName, _ := typed.Typed()
	isRateLimit := slices.Contains([]string{"envoy.rate_limit", "envoy.filters.http.ratelimit"}, name.Text)
	reported := typed.Exists() && (typed.Kind != tree.Object || len(typed.Nodes) > 0)
	switch {
	case n.Field("is_optional").Bool(false) || !isRateLimit && typeName != RateLimitPerRoute:
	case typeName == "" && !val.partial && !reported && !n.Field("config_discovery").Exists():
		val.Reject(n, `Envoy rejects the filter without typed_config: add typed_config: { "@type": type.googleapis.com/%s, domain: ... }`, RateLimit)
	case typeName == RateLimitPerRoute || typeName == NetworkRateLimit:
		val.Reject(typed.Field("@type"), "Envoy has no HTTP filter %s, and rejects it: write type.googleapis.com/%s", typeName, RateLimit)
	}
}
