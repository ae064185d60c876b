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
	// unknown are fields that the newest release does not have, deprecated are fields that it rejects unless the
	// runtime allows them, and missing are required fields of messages unrelated to rate limits.
	unknown, deprecated, missing []*ValidationError
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

// Finish completes Errors and Unknown. An unknown field is an error unless an Envoy of another release wrote the
// dump; a deprecated field is an error unless a running Envoy wrote it or the runtime allows it. A field missing
// outside of rate limits is an error only if complete is true, because excerpts leave such fields out.
func (val *Validator) Finish(dump Release, allowsDeprecated, complete bool) {
	if dump == 0 || dump == schemaRelease {
		val.addErrors(val.unknown)
	} else {
		val.Unknown = append(val.Unknown, val.unknown...)
	}
	if dump == 0 && !allowsDeprecated {
		val.addErrors(val.deprecated)
	}
	if complete {
		val.addErrors(val.missing)
	}
}

func (val *Validator) addErrors(errs []*ValidationError) {
	for _, f := range errs {
		val.Errors = append(val.Errors, f)
	}
}

// Reject adds an error unless a running Envoy has accepted the configuration.
func (val *Validator) Reject(n *tree.Node, format string, args ...any) {
	if !val.Running {
		val.Errors = append(val.Errors, errorAt(n, format, args...))
	}
}

// rejectIfComplete adds an error that counts only in a complete configuration.
func (val *Validator) rejectIfComplete(n *tree.Node, format string, args ...any) {
	if !val.Running {
		val.missing = append(val.missing, errorAt(n, format, args...))
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
	m := messages.get(name)
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
			val.reportMissingField(n, m, f, label)
		}
	}
	val.validatePerRoute(n)
	if rule := semantics[m.name]; rule != nil && !val.Running {
		rule(val, n)
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
			if f.oneof == oneof && !f.deprecated {
				names = append(names, f.name)
			}
		}
		if len(names) == 1 {
			val.reportMissing(n, m, fmt.Sprintf("%sEnvoy requires %s: add it", label, names[0]))
			continue
		}
		val.reportMissing(n, m, fmt.Sprintf("%sEnvoy requires one of %s", label, strings.Join(names, ", ")))
	}
}

// reportMissingField reports a required field that is missing or empty.
func (val *Validator) reportMissingField(n *tree.Node, m *message, f *field, label string) {
	if val.partial {
		return
	}
	text := fmt.Sprintf("%sEnvoy requires %s: add it", label, f.name)
	if f.name == "rate_limit_service" {
		text += ", such as rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: ... } } }"
		if !val.Strict { // excerpts often leave it out, patches of Istio do not
			m = messages.get(Bootstrap)
		}
	}
	val.reportMissing(n, m, text)
}

// reportMissing reports something that a message requires.
func (val *Validator) reportMissing(n *tree.Node, m *message, text string) {
	switch {
	case val.Running:
	case slices.ContainsFunc(rateLimitMessages, func(prefix string) bool { return strings.HasPrefix(m.name, prefix) }):
		val.Reject(n, "%s", text)
	default:
		val.missing = append(val.missing, &ValidationError{n.Pos(), text})
	}
}

// rateLimitMessages are the name prefixes of messages related to rate limits. Even excerpts of a configuration
// contain these completely.
var rateLimitMessages = []string{
	"envoy.config.route.v3.RateLimit", "envoy.config.route.v3.HeaderMatcher", "envoy.config.route.v3.QueryParameterMatcher", "envoy.type.matcher.", "envoy.type.metadata.",
	"envoy.extensions.filters.http.ratelimit.", "envoy.extensions.filters.network.ratelimit.", "envoy.extensions.filters.http.rate_limit_quota.", "envoy.config.ratelimit.",
	"envoy.config.core.v3.GrpcService", "envoy.config.core.v3.RuntimeFractionalPercent", "envoy.config.core.v3.CidrRange", "xds.type.matcher.",
	httpFilter, "envoy.config.core.v3.ExtensionConfigSource",
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
	if f.deprecated {
		instead := ""
		if f.name == "dynamic_metadata" {
			instead = ": write metadata"
		}
		val.deprecated = append(val.deprecated, errorAt(n, "Envoy %v rejects %s, which is deprecated%s", schemaRelease, n.Name, instead))
	}
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
			val.validateValue(child, f, f.itemRules, child.Name+": ")
			if unmet, ok := firstUnmet(&tree.Node{Kind: tree.Text, Text: child.Name}, f.keyRules); ok {
				val.Reject(child, "%skey %q: want %s", label, rules.Shorten(child.Name), unmet.describe("text"))
			}
		}
		val.validateRules(n, f, f.rules, label)
	case isEmpty(n): // reported as a missing field
		val.validateValue(n, f, nil, label)
	default:
		val.validateValue(n, f, f.rules, label)
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
		val.validateValue(&n.Nodes[i], f, f.itemRules, label)
	}
	if len(n.Nodes) > 0 {
		val.validateRules(n, f, f.rules, label)
	}
}

// validateValue validates one value of a field.
func (val *Validator) validateValue(n *tree.Node, f *field, constraints []rule, label string) {
	if n.Kind == tree.Null {
		return
	}
	if !f.accepts(n) {
		want := f.describe(constraints)
		if f.typeName == "Duration" {
			want = f.noun().singular
		}
		val.reportWrongKind(n, label, want)
		return
	}
	if len(f.values) > 0 && n.Kind == tree.Number && slices.Contains(constraints, rule{"defined_only", "true"}) && !slices.ContainsFunc(f.values, func(v enumValue) bool { return v.matches(n) }) {
		val.Reject(n, "%sfound %s, want %s", label, n.Describe(), f.noun().singular)
	}
	for _, v := range f.values {
		if v.deprecated && v.matches(n) {
			val.deprecated = append(val.deprecated, errorAt(n, "%sfound %s, which is deprecated and rejected by Envoy %v: want %s", label, n.Describe(), schemaRelease, f.noun().singular))
		}
	}
	switch {
	case f.typeName == "Any":
		val.validateAny(n, label)
	case f.isMessage():
		val.validateMessage(n, f.typeName, label)
	default:
		val.validateRules(n, f, constraints, label)
	}
}

// validateRules checks a value against the validation rules of its field.
func (val *Validator) validateRules(n *tree.Node, f *field, constraints []rule, label string) {
	unmet, ok := firstUnmet(n, constraints)
	if !ok {
		return
	}
	want := f.describe(constraints)
	switch {
	case slices.Contains([]string{"in", "lt", "lte", "gt", "gte"}, unmet.name):
	case f.isList:
		want = unmet.describe("a list")
	case f.isMap:
		want = unmet.describe("an object")
	default:
		want = unmet.describe(want)
	}
	val.Reject(n, "%sfound %s, want %s", label, n.Describe(), want)
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
	} else if at := n.Field("@type"); at.Exists() && strings.LastIndexByte(at.Text, '/') < 1 {
		val.Reject(at, "@type: found %s, want type.googleapis.com/%s", at.Describe(), at.Text)
	}
	if messages.get(typeName) == nil {
		val.reportUnknownType(n, typeName)
		return
	}
	val.validateMessage(inner, typeName, label)
}

// reportUnknownType reports a message that is not in the schema although its package is. Messages of other packages
// may be third-party.
func (val *Validator) reportUnknownType(n *tree.Node, typeName string) {
	const misspelt = 3 // letters
	if val.Running || !strings.HasPrefix(typeName, "envoy.") {
		return
	}
	nearest, inPackage := "", false
	least := misspelt + 1
	for _, name := range slices.Sorted(maps.Keys(paragraphs())) {
		inPackage = inPackage || packageOf(name) == packageOf(typeName)
		if distance := rules.EditDistance(name, typeName); distance < least {
			least, nearest = distance, name
		}
	}
	if strings.HasPrefix(typeName, httpFilters+"ratelimit.") || strings.HasPrefix(typeName, httpFilters+"rate_limit.") {
		nearest = RateLimit
	}
	switch {
	case nearest != "":
		val.unknown = append(val.unknown, errorAt(n.Field("@type"), "Envoy %v has no message %s, and rejects it: write type.googleapis.com/%s", schemaRelease, rules.Shorten(typeName), nearest))
	case inPackage:
		val.unknown = append(val.unknown, errorAt(n.Field("@type"), "Envoy %v has no message %s, and rejects it", schemaRelease, rules.Shorten(typeName)))
	}
}
