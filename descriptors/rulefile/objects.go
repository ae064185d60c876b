package rulefile

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// objects are the Kubernetes objects of a file, as `kubectl get -o yaml`, `kubectl kustomize` and
// `helm template` print them.
type objects struct {
	// any is true if there is an object, and found if an object or a document has rules.
	any, found bool
	// unread are the objects without rules.
	unread []unreadObject
	// gateway is true if there are objects of Envoy Gateway.
	gateway bool
	// deployments are those whose replicas of sluice count separately, and autoscalers may scale
	// them.
	deployments, autoscalers []*yaml.Node
}

// unreadObject is an object without rules.
type unreadObject struct {
	at *yaml.Node
	// name is its kind and name.
	name string
	// remedy states where to find its rules instead.
	remedy string
}

// object reads the rules of a Kubernetes object. ok is false if the document is not a Kubernetes
// object.
func (p *parser) object(content []byte, n *yaml.Node) (configs []rules.Config, ok bool) {
	if n.Kind != yaml.MappingNode || !isObject(n) {
		return nil, false
	}
	p.objects.any = true
	kind, _ := lookUp(n, "kind")
	version, _ := lookUp(n, "apiVersion")
	switch list, _ := lookUp(n, "items"); {
	case kind.Value == "ConfigMap":
		return p.configMap(content, n), true
	case strings.HasSuffix(kind.Value, "List") && list != nil && list.Kind == yaml.SequenceNode:
		if !p.enter(list) {
			return nil, true
		}
		defer p.leave()
		for _, item := range list.Content {
			// kubectl leaves kind and version out of the items of a ConfigMapList only.
			item = p.resolveAlias(item)
			switch below, ok := p.object(content, item); {
			case ok:
				configs = append(configs, below...)
			case item.Kind == yaml.MappingNode && kind.Value == "ConfigMapList":
				configs = append(configs, p.configMap(content, item)...)
			default:
				p.fail("", item, "an item of a List must be a Kubernetes object with apiVersion and kind")
			}
		}
		return configs, true
	case p.gateway != nil && p.gateway.Add(version.Value, kind.Value, p.pos(n), n):
		// Namespaces occur with other objects, too.
		p.objects.gateway = p.objects.gateway || kind.Value != "Namespace"
		return nil, true
	default:
		switch {
		case kind.Value == "Deployment" && countsSeparately(n):
			p.objects.deployments = append(p.objects.deployments, n)
		case kind.Value == "HorizontalPodAutoscaler":
			p.objects.autoscalers = append(p.objects.autoscalers, n)
		}
		remedy := cmp.Or(remedies[kind.Value], "give sluice the ConfigMap that contains the rules, or their file")
		p.objects.unread = append(p.objects.unread, unreadObject{n, objectName(n), remedy})
		return nil, true
	}
}

// isObject reports whether a map is a Kubernetes object.
func isObject(n *yaml.Node) bool {
	kind, _ := lookUp(n, "kind")
	version, _ := lookUp(n, "apiVersion")
	domain, _ := lookUp(n, "domain")
	return kind != nil && version != nil && domain == nil &&
		kind.Kind == yaml.ScalarNode && kind.Value != "" && version.Kind == yaml.ScalarNode && version.Value != ""
}

// lookUp returns the value of a key of a map, with an alias resolved, and the key, or nil.
func lookUp(n *yaml.Node, word string) (value, key *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Kind == yaml.ScalarNode && k.Value == word {
			if value, key = n.Content[i+1], k; value.Kind == yaml.AliasNode {
				value = value.Alias
			}
		}
	}
	return value, key
}

func objectName(n *yaml.Node) string {
	name := "ConfigMap" // items of a ConfigMapList have no kind
	if kind, _ := lookUp(n, "kind"); kind != nil {
		name = kind.Value
	}
	metadata, _ := lookUp(n, "metadata")
	if text, _ := lookUp(metadata, "name"); text != nil && text.Kind == yaml.ScalarNode && text.Value != "" {
		name += " " + text.Value
	}
	return rules.Shorten(name)
}

const ofEnvoyGateway = "Envoy Gateway translates BackendTrafficPolicies, Gateways and routes into rules, and sends them over xDS: " +
	"set --xds-addr, as in kustomize/overlays/envoy-gateway; only sluice check reads the objects"

// remedies say for each kind of object where its rules are.
var remedies = map[string]string{
	"BackendTrafficPolicy": ofEnvoyGateway, "Gateway": ofEnvoyGateway, "HTTPRoute": ofEnvoyGateway, "GRPCRoute": ofEnvoyGateway,
	"EnvoyFilter":     "it configures Envoy; check it with sluice envoy check, and give that the rules with -c",
	"RateLimitPolicy": "it has limits in Kuadrant's format; write them as rules",
	"QuotaPolicy": "Envoy AI Gateway translates it into rules, and sends them over xDS: " +
		"show the active rules with sluice explain --addr, or /rlconfig on port 6070",
	"Secret": "its data is base64; give sluice the output of " +
		`kubectl get secret NAME -o go-template='{{ index .data "rules.yaml" | base64decode }}'`,
}

// rulesAtMargin finds a field that only files of rules have at the left margin.
var rulesAtMargin = regexp.MustCompile(`(?m)^(?:\{\s*)?["']?(?:domain|descriptors)["']?[ \t]*:`)

// rulesAnywhere finds such a field in indented rules, too.
var rulesAnywhere = regexp.MustCompile(`\b(?:domain|descriptors)["']?[ \t]*:`)

// configMap reads the files of a ConfigMap as if it were mounted.
func (p *parser) configMap(content []byte, n *yaml.Node) (configs []rules.Config) {
	files := map[string]*yaml.Node{}
	var isRules bool
	p.warnDuplicates(n, "data", "binaryData")
	for _, word := range []string{"data", "binaryData"} {
		data, _ := lookUp(n, word)
		if data == nil || data.Kind != yaml.MappingNode || !p.enter(data) {
			continue
		}
		defer p.leave()
		p.warnDuplicates(data)
		for i := 0; i+1 < len(data.Content); i += 2 {
			key := p.resolveAlias(data.Content[i])
			text := p.resolveAlias(data.Content[i+1])
			if word == "binaryData" {
				text = p.decodeBinaryData(key.Value, text)
			}
			if !strings.HasPrefix(key.Value, ".") { // mounted files with such names are skipped
				files[key.Value] = text
				isRules = isRules || text.Kind == yaml.ScalarNode && rulesAtMargin.MatchString(text.Value)
			}
		}
	}
	names := slices.Sorted(maps.Keys(files)) // the order in which mounted files are read
	if !isRules {
		remedy := "it has no data"
		if len(names) > 0 {
			remedy = "none of its keys contains rules: " + rules.Shorten(strings.Join(names, ", "))
		}
		p.objects.unread = append(p.objects.unread, unreadObject{n, objectName(n), remedy})
		return nil
	}
	p.objects.found = true
	for _, name := range names {
		text := files[name]
		switch {
		case text.Kind != yaml.ScalarNode:
			p.fail("", text, "%s in the data of a ConfigMap must be text, not %s", rules.Shorten(name), kindName(text))
		case IsBackup(name):
			p.diagnostics = append(p.diagnostics,
				rules.Diagnostic{Pos: p.pos(text), Severity: rules.Note, Message: NotReadBackup})
		case !rulesAnywhere.MatchString(text.Value) && strings.TrimSpace(text.Value) != "":
			p.fail("",
				text, "%s of this %s is not a file of rules, but would be read as one if the ConfigMap is mounted; "+
					"move it to a ConfigMap of its own", rules.Shorten(name), objectName(n))
		default:
			configs = append(configs, p.embedded(content, text)...)
		}
	}
	return configs
}

// warnDuplicates warns of duplicate keys of a map: of those given, or of all if none is.
func (p *parser) warnDuplicates(n *yaml.Node, only ...string) {
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := p.resolveAlias(n.Content[i])
		if len(only) > 0 && !slices.Contains(only, key.Value) {
			continue
		}
		if other := first[key.Value]; other != nil {
			p.warnDuplicate("", key, rules.Shorten(key.Value), other, "the last one wins")
		} else {
			first[key.Value] = key
		}
	}
}

// decodeBinaryData returns the value of a key of binaryData, with its place.
func (p *parser) decodeBinaryData(name string, text *yaml.Node) *yaml.Node {
	content, err := base64.StdEncoding.DecodeString(text.Value)
	if err != nil {
		p.fail("", text, "%s in the binaryData of a ConfigMap must be base64: %v", rules.Shorten(name), err)
	}
	return &yaml.Node{Kind: text.Kind, Value: string(content), Line: text.Line, Column: text.Column}
}

// NotReadBackup is the note about a file that [IsBackup].
const NotReadBackup = "not read: the file has the name of a backup"

// IsBackup reports whether a name is that of an older version of a file, as editors and merges keep
// it. Reading it would activate the old rules, too.
func IsBackup(name string) bool {
	name = path.Base(name)
	if strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#") {
		return true
	}
	return slices.ContainsFunc([]string{"~", ".bak", ".old", ".orig", ".rej", ".swp", ".swo"}, func(ending string) bool {
		return strings.HasSuffix(name, ending)
	})
}

// reportUnreadObjects reports the objects without rules: as a note, or as errors if no rules were
// found at all.
func (p *parser) reportUnreadObjects() {
	others := p.objects.unread
	if len(others) == 0 {
		return
	}
	if !p.objects.found && !p.objects.gateway {
		for len(others) > 0 {
			alike := func(o unreadObject) bool { return o.remedy == others[0].remedy }
			rest := slices.DeleteFunc(slices.Clone(others), alike)
			others = slices.DeleteFunc(others, func(o unreadObject) bool { return !alike(o) })
			this := ""
			if len(others) == 1 {
				this = "this "
			}
			p.fail("", others[0].at, "no rules in %s%s: %s", this, namesOf(others), others[0].remedy)
			others = rest
		}
		return
	}
	p.diagnostics = append(p.diagnostics, rules.Diagnostic{
		Pos: p.pos(others[0].at), Severity: rules.Note, Message: "not read, since they contain no rules: " + namesOf(others),
	})
}

// namesOf lists the names of the first few objects.
func namesOf(others []unreadObject) string {
	const few = 5
	var names []string
	for _, o := range others[:min(few, len(others))] {
		names = append(names, o.name)
	}
	if more := len(others) - few; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
