package envoyconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// keyWrite is a key of the dynamic metadata that a filter sets.
type keyWrite struct {
	key string
	// at is the field that sets the key, such as on_present.
	at *tree.Node
	// value is the value that the filter sets, or missing if it depends on the request.
	value *tree.Node
	// isNumber is true if the value is a number, and isText if it is a text. isBinary is true if it is an encoded message,
	// which a header cannot contain.
	isNumber, isText, isBinary bool
	// noRules is true for a claim of a filter that verifies no token.
	noRules bool
	// header is the header from which the value is read, if any; isCopy is true if the value is that of the header.
	header string
	isCopy bool
	// atResponse is true if the filter sets it when the response arrives.
	atResponse bool
}

// keyWrites returns the keys of a namespace that the filter sets. complete is false if it may set others.
func (f *filter) keyWrites(namespace string) (all []keyWrite, complete bool) {
	if len(f.perRouteStrings) > 0 {
		return nil, false
	}
	header := ""
	add := func(n *tree.Node, atResponse bool) {
		if n.Field("key").Text == "" ||
			cmp.Or(n.Field("metadata_namespace").Text, responseNamespace(f), namespaces[f.typeName]) != namespace {
			return
		}
		w := keyWrite{key: n.Field("key").Text, at: n, value: &tree.Missing, atResponse: atResponse}
		switch kind := n.Field("type"); f.typeName {
		case headerToMetadata:
			name := kind.Enum("STRING", "NUMBER", "PROTOBUF_VALUE")
			w.isText = name == "STRING"
			w.isNumber = name == "NUMBER"
			w.isBinary = name == "PROTOBUF_VALUE" && n.Field("encode").Enum("NONE", "BASE64") == "NONE" && header != ""
			w.header = header
			w.isCopy = header != "" && w.isText && !n.Field("value").Exists() &&
				!n.Field("regex_value_rewrite").Exists() && !n.Field("encode").Exists()
		default:
			w.isNumber = kind.Enum("PROTOBUF_VALUE", "STRING", "NUMBER") == "NUMBER"
		}
		all = append(all, w)
	}
	switch f.typeName {
	case luaCode:
		return luaWrites(f.config, namespace)
	case headerToMetadata:
		for n := range f.config.Field("request_rules").Elements() {
			header = strings.ToLower(n.Field("header").Text)
			add(n.Field("on_header_present"), false)
			header = ""
			add(n.Field("on_header_missing"), false)
		}
		f.config.Field("response_rules").Walk(func(n *tree.Node) { add(n, true) })
	case jsonToMetadata, sseToMetadata:
		f.config.Field("request_rules").Walk(func(n *tree.Node) { add(n, false) })
		f.config.Field("response_rules").Walk(func(n *tree.Node) { add(n, true) })
	case setMetadata:
		for _, n := range append(tree.Map(f.config.Field("metadata"), func(n *tree.Node) *tree.Node { return n }),
			f.config) {
			if n.Field("metadata_namespace").Text != namespace {
				continue
			}
			for value := range n.Field("value").Fields() {
				all = append(all, keyWrite{
					key: value.Name, value: value, isNumber: value.Kind == tree.Number || value.Kind == tree.Boolean, isText: value.Kind == tree.Text,
				})
			}
		}
	case jwtAuthn:
		noRules := !f.verifiesTokens()
		for provider := range f.config.Field("providers").Fields() {
			for _, field := range []string{"payload_in_metadata", "header_in_metadata", "failed_status_in_metadata"} {
				if name := provider.Field(field).Text; name != "" {
					all = append(all, keyWrite{key: name, value: &tree.Missing, noRules: noRules})
				}
			}
		}
	default:
		return nil, false
	}
	return all, true
}

// verifiesTokens reports whether a jwt_authn filter has a rule that requires a token.
func (f *filter) verifiesTokens() bool {
	requires := tree.Map(f.config.Field("rules"), requiresToken)
	return slices.Contains(requires, true) || f.verifiesElsewhere()
}

// requiresToken reports whether a rule of jwt_authn requires a token.
func requiresToken(rule *tree.Node) bool {
	return len(rule.Field("requires").Nodes) > 0 || rule.Field("requirement_name").Text != ""
}

// verifiesElsewhere reports whether a jwt_authn filter may verify tokens by other settings than its rules.
func (f *filter) verifiesElsewhere() bool {
	return len(f.perRouteStrings) > 0 || f.config.Field("filter_state_rules").Exists() ||
		f.config.Field("requirement_map").Exists()
}

// verifierOf returns the only jwt_authn filter that may set the metadata at a key; nil if there is none or several.
func (f *filter) verifierOf(m *manager, key *tree.Node) (found *filter) {
	if key.Field("key").Text != namespaces[jwtAuthn] {
		return nil
	}
	for _, other := range m.filters {
		if other.writesTo(namespaces[jwtAuthn]) == neverWrites {
			continue
		}
		if found != nil || other.typeName != jwtAuthn {
			return nil
		}
		found = other
	}
	return found
}

// verifiesTokensOf reports whether a jwt_authn filter verifies a token on a route. Its first rule that matches decides.
func (f *filter) verifiesTokensOf(r *route) bool {
	path := r.pathLiteral()
	if f.verifiesElsewhere() || r.fragment || !path.Exists() || !r.node.At("match", "case_sensitive").Bool(true) {
		return true
	}
	for rule := range f.config.Field("rules").Elements() {
		match := rule.Field("match")
		prefix := match.Field("prefix")
		switch {
		case !prefix.Exists() || !match.Field("case_sensitive").Bool(true) ||
			!path.HasName("prefix") && !path.HasName("path"):
			return true
		case strings.HasPrefix(path.Text, prefix.Text) && len(match.Nodes) == 1:
			return requiresToken(rule)
		case strings.HasPrefix(path.Text, prefix.Text),
			path.HasName("prefix") && strings.HasPrefix(prefix.Text, path.Text):
			if requiresToken(rule) {
				return true
			}
		}
	}
	return false
}

const maySetMetadata = "another filter may set it"

// originOf describes who sets the metadata at a key. textOnly is true if the reader ignores numbers.
func (m *manager) originOf(limiter *filter, key *tree.Node, streamDone, textOnly bool) metadataOrigin {
	return m.findOrigin(limiter, key.Field("key").Text, metadataPath(key), streamDone, textOnly)
}

// originOfValue describes who sets a value that hits read.
func (m *manager) originOfValue(limiter *filter, v metadataValue, streamDone bool) metadataOrigin {
	return m.findOrigin(limiter, v.namespace, []string{v.key}, streamDone, false)
}

// findOrigin describes who sets the dynamic metadata that a descriptor reads. streamDone is true if it is read at the end
// of the stream, when all filters have run.
func (m *manager) findOrigin(
	limiter *filter, namespace string, path []string, streamDone, textOnly bool,
) metadataOrigin {
	if m.fragments || namespace == "" || limiter == nil {
		return metadataOrigin{by: maySetMetadata}
	}
	found, maybe := findSetter(m.before(limiter), namespace)
	later, mayBeLater := findSetter(m.after(limiter), namespace)
	if streamDone {
		found = cmp.Or(found, later)
		maybe = maybe || mayBeLater || m.hasUpstreamFilters
	}
	by := maySetMetadata
	if found != nil {
		by = "the filter " + found.name + " sets it"
	}
	before := " before the rate limit filter"
	if streamDone {
		before = ""
	}
	switch {
	case maybe:
		return metadataOrigin{by: by}
	case found == nil && later != nil:
		return metadataOrigin{whyUnset: fmt.Sprintf("the filter that sets the metadata %s, at %v, runs after the rate limit filter: put it before", namespace, later.node.Pos())}
	case found == nil:
		return metadataOrigin{whyUnset: fmt.Sprintf("no filter%s sets the metadata %s: add the one that does, or correct the key", before, namespace)}
	case len(path) == 0:
		return metadataOrigin{by: by}
	}
	whyUnset, only := m.findKey(limiter, namespace, path, streamDone, textOnly)
	return metadataOrigin{by, whyUnset, only}
}

// findKey returns the only write of a key of a namespace that a filter sets; nil if there are several or unknown ones.
// whyUnset is the reason why the key is never set, or is never of the kind that the reader needs.
func (m *manager) findKey(
	limiter *filter, namespace string, path []string, streamDone, textOnly bool,
) (whyUnset string, only *keyWrite) {
	var keys []string
	var last *filter
	why := ""
	found := 0
	filters := m.before(limiter)
	if streamDone {
		filters = slices.Concat(filters, m.after(limiter))
	}
	for _, f := range filters {
		if f.writesTo(namespace) != writes {
			continue
		}
		all, complete := f.keyWrites(namespace)
		if !complete {
			return "", nil
		}
		last = f
		for _, w := range all {
			keys = append(keys, w.key)
			if w.key != path[0] {
				continue
			}
			wrong := w.mismatch(path, streamDone, textOnly)
			if wrong == "" && w.header != "" {
				wrong = m.impossibleHeader(f, w.header)
			}
			if wrong == "" {
				found++
				only = &w
				continue
			}
			why = fmt.Sprintf("the filter at %v sets %s:%s, but %s", f.node.Pos(), namespace,
				rules.Shorten(strings.Join(path, ".")), wrong)
		}
	}
	switch {
	case found > 1:
		return "", nil
	case found == 1:
		return "", only
	case why != "" || last == nil:
		return why, nil
	case namespace == namespaces[jwtAuthn]:
		return fmt.Sprintf("no provider of the filter at %v has payload_in_metadata: %s, so the metadata is never set%s", last.node.Pos(), rules.Shorten(path[0]), rules.DidYouMean(path[0], keys)), nil
	default:
		slices.Sort(keys)
		return fmt.Sprintf("the filter at %v sets the metadata %s, but not its key %s%s", last.node.Pos(), namespace,
			rules.Shorten(path[0]), rules.DidYouMean(path[0], slices.Compact(keys))), nil
	}
}

// mismatch returns why a reader never gets the value at the path; empty if it may.
func (w keyWrite) mismatch(path []string, streamDone, textOnly bool) string {
	value := w.value
	for _, key := range path[1:] {
		value = value.Value(key)
	}
	switch {
	case w.noRules:
		return "its rules verify no token"
	case w.isBinary:
		return "a header cannot contain a PROTOBUF_VALUE without encode: BASE64"
	case w.atResponse && !streamDone:
		return "when the response arrives, after the rate limit filter has read it"
	case w.value.Exists() && !value.Exists():
		return "not that part of it"
	case w.value.Exists() && textOnly && value.Kind != tree.Text:
		return "as " + value.Kind.String() + ", and the action metadata reads only text"
	case len(path) > 1 && (w.isText || w.isNumber) && !w.value.Exists():
		return "as one value without parts"
	case len(path) == 1 && textOnly && w.isNumber:
		return "as a number, and the action metadata reads only text"
	default:
		return ""
	}
}
