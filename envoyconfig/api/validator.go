package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// A FaultError is a place at which a configuration differs from Envoy's API.
type ValidationError struct {
	Pos     rules.Pos
	Message string
}

// Error returns the fault as file:line:column: message.
func (f *ValidationError) Error() string { return fmt.Sprintf("%v: %s", f.Pos, f.Message) }

// Validator finds what Envoy rejects. Its zero value is ready to use.
type Validator struct {
	// Errors is what Envoy rejects. It is complete after Conclude.
	Errors []error
	// Unknown are the fields and types that are not in the schema, but may be known to the Envoy that wrote a dump.
	Unknown []*ValidationError
	// Running is set while the dump of a running Envoy is judged. That Envoy has accepted it, so only values that cannot
	// be read are wrong.
	Running bool
	// Strict is set while values are judged that istiod reads, which takes no single value for a list of it.
	Strict bool
	// strange are fields that the newest release does not have, deprecated those that it
	// rejects unless the runtime allows them, and lacking those that are missing outside of rate limits.
	unknown, deprecated, missing []*ValidationError
	// partial is true while a part of a message is judged.
	partial bool
}

// Validate judges a message, by its name, before it is read. A message that is not known may be any object.
func (j *Validator) Validate(n *tree.Node, message string) {
	j.validateMessage(n, message, "")
}

// ValidatePart judges a part of a message, which may lack what Envoy needs.
func (j *Validator) ValidatePart(n *tree.Node, message string) {
	j.partial = true
	j.Validate(n, message)
	j.partial = false
}

// Finish completes Wrong and Newer. An unknown field is wrong unless an Envoy of another release wrote the dump; a
// deprecated one is unless a running Envoy wrote it or the runtime allows it. A field that is missing outside of rate
// limits is wrong in a whole configuration only: excerpts leave out what does not matter.
func (j *Validator) Finish(dump Release, allowsDeprecated, whole bool) {
	if dump == 0 || dump == schemaRelease {
		j.addErrors(j.unknown)
	} else {
		j.Unknown = append(j.Unknown, j.unknown...)
	}
	if dump == 0 && !allowsDeprecated {
		j.addErrors(j.deprecated)
	}
	if whole {
		j.addErrors(j.missing)
	}
}

func (j *Validator) addErrors(faults []*ValidationError) {
	for _, f := range faults {
		j.Errors = append(j.Errors, f)
	}
}

// Reject adds something that Envoy rejects, unless a running one has accepted it.
func (j *Validator) Reject(n *tree.Node, format string, args ...any) {
	if !j.Running {
		j.Errors = append(j.Errors, errorAt(n, format, args...))
	}
}

// rejectIfComplete adds something that Envoy rejects in a whole configuration. Excerpts may leave out what makes it right.
func (j *Validator) rejectIfComplete(n *tree.Node, format string, args ...any) {
	if !j.Running {
		j.missing = append(j.missing, errorAt(n, format, args...))
	}
}

func errorAt(n *tree.Node, format string, args ...any) *ValidationError {
	return &ValidationError{n.Pos(), fmt.Sprintf(format, args...)}
}

// reportWrongKind adds a value that is of another kind than its field, which no Envoy takes.
func (j *Validator) reportWrongKind(n *tree.Node, label, want string) {
	hint := ""
	if n.Kind == tree.Boolean && tree.IsYAML11Bool(n.Text) {
		hint = ": put it in quotes, without which it is true or false"
	}
	j.Errors = append(j.Errors, errorAt(n, "%sfound %s, want %s%s", label, n.Describe(), want, hint))
}

// validateMessage judges an object. The label precedes what is said of the object itself.
func (j *Validator) validateMessage(n *tree.Node, name, label string) {
	if n.Kind == tree.Absent || n.Kind == tree.Null {
		return
	}
	if n.Kind != tree.Object {
		j.reportWrongKind(n, label, "an object")
		return
	}
	m := messages.get(name)
	if m == nil {
		return
	}
	set := map[*field]*tree.Node{}
	strangers := false
	for below := range n.Fields() {
		f := m.byName[below.Name]
		switch {
		case f == nil && !m.open && below.Name != "@type":
			strangers = true
			j.reportUnknownField(below, m)
		case f != nil:
			if below.Kind != tree.Null {
				set[f] = below
			}
			j.validateField(below, f)
		}
	}
	j.validateOneofs(n, m, set, label, strangers)
	for _, f := range m.fields {
		if at := set[f]; f.required && isEmpty(at) && (at != nil || f.oneof == "") {
			j.reportMissingField(n, m, f, label)
		}
	}
	j.validatePerRoute(n)
	if rule := semantics[m.name]; rule != nil && !j.Running {
		rule(j, n)
	}
}

// validateOneofs judges how many fields of each oneof are set.
func (j *Validator) validateOneofs(n *tree.Node, m *message, set map[*field]*tree.Node, label string, strangers bool) {
	members := map[string][]string{}
	for _, f := range m.fields {
		if f.oneof != "" && set[f] != nil {
			members[f.oneof] = append(members[f.oneof], f.name)
		}
	}
	for _, oneof := range slices.Sorted(maps.Keys(members)) {
		if there := members[oneof]; len(there) > 1 {
			j.Reject(n, "%sEnvoy takes %s alone: leave out all but one", label, strings.Join(there, " or "))
		}
	}
	for _, oneof := range m.oneofs {
		if len(members[oneof]) > 0 || j.partial || strangers {
			continue
		}
		var names []string
		for _, f := range m.fields {
			if f.oneof == oneof && !f.deprecated {
				names = append(names, f.name)
			}
		}
		if len(names) == 1 {
			j.reportMissing(n, m, fmt.Sprintf("%sEnvoy rejects it without %s: add it", label, names[0]))
			continue
		}
		j.reportMissing(n, m, fmt.Sprintf("%sEnvoy needs one of %s", label, strings.Join(names, ", ")))
	}
}

// reportMissingField adds a field that is missing or empty.
func (j *Validator) reportMissingField(n *tree.Node, m *message, f *field, label string) {
	if j.partial {
		return
	}
	text := fmt.Sprintf("%sEnvoy rejects it without %s: add it", label, f.name)
	if f.name == "rate_limit_service" {
		text += ", such as rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: ... } } }"
		if !j.Strict { // excerpts often leave it out, patches of Istio do not
			m = messages.get(Bootstrap)
		}
	}
	j.reportMissing(n, m, text)
}

// reportMissing adds what a message needs.
func (j *Validator) reportMissing(n *tree.Node, m *message, text string) {
	switch {
	case j.Running:
	case slices.ContainsFunc(rateLimitMessages, func(prefix string) bool { return strings.HasPrefix(m.name, prefix) }):
		j.Reject(n, "%s", text)
	default:
		j.missing = append(j.missing, &ValidationError{n.Pos(), text})
	}
}

// rateLimitMessages are the beginnings of the names of messages that are about rate limits. An excerpt of a configuration has
// these whole.
var rateLimitMessages = []string{
	"envoy.config.route.v3.RateLimit", "envoy.config.route.v3.HeaderMatcher", "envoy.config.route.v3.QueryParameterMatcher", "envoy.type.matcher.", "envoy.type.metadata.",
	"envoy.extensions.filters.http.ratelimit.", "envoy.extensions.filters.network.ratelimit.", "envoy.extensions.filters.http.rate_limit_quota.", "envoy.config.ratelimit.",
	"envoy.config.core.v3.GrpcService", "envoy.config.core.v3.RuntimeFractionalPercent", "envoy.config.core.v3.CidrRange", "xds.type.matcher.",
	httpFilter, "envoy.config.core.v3.ExtensionConfigSource",
}

// reportUnknownField notes a field that Envoy does not have.
func (j *Validator) reportUnknownField(n *tree.Node, m *message) {
	if j.Running {
		return
	}
	name := tree.SnakeCase(n.Name)
	if elsewhere := misplacedFields[m.name+"."+name]; elsewhere != "" {
		j.unknown = append(j.unknown, errorAt(n, "Envoy %v has no field %s here, and rejects it: put it %s", schemaRelease, rules.Shorten(n.Name), elsewhere))
		return
	}
	hint := ""
	if name == "unit_multiplier" {
		hint = ", or write the limit into the rules, which have it"
	}
	var names []string
	for _, f := range m.fields {
		names = append(names, f.name)
	}
	slices.Sort(names)
	hint += rules.DidYouMean(rules.Nearest(name, names))
	j.unknown = append(j.unknown, errorAt(n, "Envoy %v has no field %s here, and rejects it: leave it out%s", schemaRelease, rules.Shorten(n.Name), hint))
}

// misplacedFields says for some fields that Envoy does not have where to put them.
var misplacedFields = map[string]string{
	Bootstrap + ".rate_limit_service": "into the rate limit filter: here it was of the v2 API",
	RouteTable + ".rate_limits":       "into a virtual host or a route",
	VirtualHost + ".route":            "into an element of routes; in an EnvoyFilter put its rate_limits into value, or write applyTo: HTTP_ROUTE",
	Route + ".rate_limits":            "below route, beside cluster",
	Cluster + ".hosts":                "into load_assignment, as endpoints: hosts was of the v2 API",
}

// validateField judges the value of a field.
func (j *Validator) validateField(n *tree.Node, f *field) {
	label := n.Name + ": "
	if f.deprecated {
		instead := ""
		if f.name == "dynamic_metadata" {
			instead = ": write metadata"
		}
		j.deprecated = append(j.deprecated, errorAt(n, "Envoy %v rejects %s, which is deprecated%s", schemaRelease, n.Name, instead))
	}
	// Merging a part appends the elements of lists and replaces the values of maps, so these must be complete.
	part := j.partial
	j.partial = part && !f.isList && !f.isMap
	defer func() { j.partial = part }()
	switch {
	case n.Kind == tree.Null:
	case f.isList:
		j.validateList(n, f, label)
	case f.isMap && n.Kind != tree.Object:
		j.reportWrongKind(n, label, "an object")
	case f.isMap:
		for below := range n.Fields() {
			j.validateValue(below, f, f.itemRules, below.Name+": ")
			if unmet, ok := firstUnmet(&tree.Node{Kind: tree.Text, Text: below.Name}, f.keyRules); ok {
				j.Reject(below, "%skey %q: want %s", label, rules.Shorten(below.Name), unmet.describe("text"))
			}
		}
		j.validateRules(n, f, f.rules, label)
	case isEmpty(n): // judged with the fields that are missing
		j.validateValue(n, f, nil, label)
	default:
		j.validateValue(n, f, f.rules, label)
	}
}

// validateList judges a list.
func (j *Validator) validateList(n *tree.Node, f *field, label string) {
	if n.Kind != tree.List {
		// Envoy takes a single value for a list of it.
		if j.Strict || !f.accepts(n) {
			j.reportWrongKind(n, label, "a list of "+f.noun().many)
			return
		}
		one := *n
		n.Kind, n.Text, n.Nodes = tree.List, "", []tree.Node{one}
	}
	for i := range n.Nodes {
		j.validateValue(&n.Nodes[i], f, f.itemRules, label)
	}
	if len(n.Nodes) > 0 {
		j.validateRules(n, f, f.rules, label)
	}
}

// validateValue judges one value of a field.
func (j *Validator) validateValue(n *tree.Node, f *field, constraints []rule, label string) {
	if n.Kind == tree.Null {
		return
	}
	if !f.accepts(n) {
		want := f.describe(constraints)
		if f.typeName == "Duration" {
			want = f.noun().one
		}
		j.reportWrongKind(n, label, want)
		return
	}
	if len(f.values) > 0 && n.Kind == tree.Number && slices.Contains(constraints, rule{"defined_only", "true"}) && !slices.ContainsFunc(f.values, func(v enumValue) bool { return v.matches(n) }) {
		j.Reject(n, "%sfound %s, want %s", label, n.Describe(), f.noun().one)
	}
	for _, v := range f.values {
		if v.deprecated && v.matches(n) {
			j.deprecated = append(j.deprecated, errorAt(n, "%sfound %s, which is deprecated, and which Envoy %v rejects: want %s", label, n.Describe(), schemaRelease, f.noun().one))
		}
	}
	switch {
	case f.typeName == "Any":
		j.validateAny(n, label)
	case f.isMessage():
		j.validateMessage(n, f.typeName, label)
	default:
		j.validateRules(n, f, constraints, label)
	}
}

// validateRules judges whether a value meets the rules of its field.
func (j *Validator) validateRules(n *tree.Node, f *field, constraints []rule, label string) {
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
	j.Reject(n, "%sfound %s, want %s", label, n.Describe(), want)
}

// validateAny judges an object whose @type names its message.
func (j *Validator) validateAny(n *tree.Node, label string) {
	typeName, inner := n.Typed()
	if inner != n && inner.Exists() && inner.Kind != tree.Object {
		j.reportWrongKind(inner, "value: ", "an object")
		return
	}
	if typeName == "" && len(n.Nodes) > 0 {
		j.Reject(n, `%sEnvoy rejects it without "@type", which names the message: add it`, label)
	} else if at := n.Field("@type"); at.Exists() && strings.LastIndexByte(at.Text, '/') < 1 {
		j.Reject(at, "@type: found %s, want type.googleapis.com/%s", at.Describe(), at.Text)
	}
	if messages.get(typeName) == nil {
		j.reportUnknownType(n, typeName)
		return
	}
	j.validateMessage(inner, typeName, label)
}

// reportUnknownType notes a message that is not in the schema, although its package is. Others may be of another maker.
func (j *Validator) reportUnknownType(n *tree.Node, typeName string) {
	const misspelt = 3 // letters
	if j.Running || !strings.HasPrefix(typeName, "envoy.") {
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
		j.unknown = append(j.unknown, errorAt(n.Field("@type"), "Envoy %v has no message %s, and rejects it: write type.googleapis.com/%s", schemaRelease, rules.Shorten(typeName), nearest))
	case inPackage:
		j.unknown = append(j.unknown, errorAt(n.Field("@type"), "Envoy %v has no message %s, and rejects it", schemaRelease, rules.Shorten(typeName)))
	}
}
