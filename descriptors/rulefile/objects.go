package rulefile

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// objects are those of Kubernetes in a file, beside or in place of documents of rules: what `kubectl get -o yaml`,
// `kubectl kustomize` and `helm template` print.
type objects struct {
	// found says that rules stand in one, or in a document.
	found bool
	// others are the objects without rules.
	others []otherObject
	// gateway says that there are some of Envoy Gateway's.
	gateway bool
}

// otherObject is an object without rules.
type otherObject struct {
	at *yaml.Node
	// name is its kind, and its name in Kubernetes.
	name string
	// remedy says where rules are instead.
	remedy string
}

// object reads the rules in an object of Kubernetes, and reports whether the document is one.
func (p *parser) object(content []byte, n *yaml.Node) (configs []rules.Config, is bool) {
	if n.Kind != yaml.MappingNode || !isObject(n) {
		return nil, false
	}
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
			item = p.follow(item)
			switch below, is := p.object(content, item); {
			case is:
				configs = append(configs, below...)
			case item.Kind == yaml.MappingNode && kind.Value == "ConfigMapList":
				configs = append(configs, p.configMap(content, item)...)
			default:
				p.fail("", item, "an item of a List must be an object of Kubernetes, with apiVersion and kind")
			}
		}
		return configs, true
	case p.gateway != nil && p.gateway.Add(version.Value, kind.Value, p.pos(n), n):
		p.objects.gateway = true
		return nil, true
	default:
		remedy := cmp.Or(remedies[kind.Value], "give sluice the ConfigMap that holds the rules, or their file")
		p.objects.others = append(p.objects.others, otherObject{n, objectName(n), remedy})
		return nil, true
	}
}

// isObject reports whether a map is an object of Kubernetes, such as the ConfigMap that contains rules.
func isObject(n *yaml.Node) bool {
	kind, _ := lookUp(n, "kind")
	version, _ := lookUp(n, "apiVersion")
	domain, _ := lookUp(n, "domain")
	return kind != nil && version != nil && domain == nil &&
		kind.Kind == yaml.ScalarNode && kind.Value != "" && version.Kind == yaml.ScalarNode && version.Value != ""
}

// lookUp returns the value of a key of a map, aliases followed, and the key; nil if there is none.
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

// objectName is the kind and the name of an object.
func objectName(n *yaml.Node) string {
	name := "ConfigMap" // in a ConfigMapList it is not said
	if kind, _ := lookUp(n, "kind"); kind != nil {
		name = kind.Value
	}
	metadata, _ := lookUp(n, "metadata")
	if text, _ := lookUp(metadata, "name"); text != nil && text.Kind == yaml.ScalarNode && text.Value != "" {
		name += " " + text.Value
	}
	return rules.Shorten(name)
}

// remedies say where the rules are that one may look for in objects of these kinds.
var remedies = map[string]string{
	"BackendTrafficPolicy": "Envoy Gateway makes rules of it, of its Gateway and of its routes, and sends them by xDS: " +
		"serve with --xds-addr, as kustomize/overlays/envoy-gateway does; sluice check reads it with its Gateway and routes",
	"EnvoyFilter":     "it configures Envoy: give it to sluice envoy check, and its rules with -c",
	"RateLimitPolicy": "it holds limits of Kuadrant's own language; write them as rules",
	"QuotaPolicy": "Envoy AI Gateway makes rules of it, and sends them by xDS: " +
		"see those in force with sluice explain --addr, or /rlconfig on port 6070",
	"Secret": "its data is not text: give sluice that of " +
		`kubectl get secret NAME -o go-template='{{ index .data "rules.yaml" | base64decode }}'`,
}

// rulesBegin finds a word that only files of rules have at the left margin.
var rulesBegin = regexp.MustCompile(`(?m)^(?:\{\s*)?["']?(?:domain|descriptors)["']?[ \t]*:`)

// configMap reads the files of a ConfigMap as if it were mounted: each key is one.
func (p *parser) configMap(content []byte, n *yaml.Node) (configs []rules.Config) {
	data, _ := lookUp(n, "data")
	if data == nil || data.Kind != yaml.MappingNode || !p.enter(data) {
		p.objects.others = append(p.objects.others, otherObject{n, objectName(n), "it has no data"})
		return nil
	}
	defer p.leave()
	files := map[string]*yaml.Node{}
	var isRules bool
	for i := 0; i+1 < len(data.Content); i += 2 {
		key, text := p.follow(data.Content[i]), p.follow(data.Content[i+1])
		isRules = isRules || text.Kind == yaml.ScalarNode && rulesBegin.MatchString(text.Value)
		if !strings.HasPrefix(key.Value, ".") { // hidden in a mount
			files[key.Value] = text
		}
	}
	if !isRules {
		names := strings.Join(slices.Sorted(maps.Keys(files)), ", ")
		p.objects.others = append(p.objects.others, otherObject{n, objectName(n), "none of its files is one of rules: " + rules.Shorten(names)})
		return nil
	}
	p.objects.found = true
	if _, key := lookUp(n, "binaryData"); key != nil {
		p.fail("", key, "binaryData holds what is not text, and would be read as rules where the ConfigMap is mounted")
	}
	for _, name := range slices.Sorted(maps.Keys(files)) { // the order in which a mount is read
		text := files[name]
		switch {
		case text.Kind != yaml.ScalarNode:
			p.fail("", text, "%s in the data of a ConfigMap must be text, not %s", rules.Shorten(name), kindName(text))
		case IsBackup(name):
			p.diagnostics = append(p.diagnostics, rules.Diagnostic{Pos: p.pos(text), Severity: rules.Note, Message: NotReadBackup})
		default:
			configs = append(configs, p.embedded(content, text)...)
		}
	}
	return configs
}

// NotReadBackup is the note about a file that [IsBackup].
const NotReadBackup = "not read as rules, since the name is that of a backup"

// IsBackup reports whether editors and merges give that name to an older version of a
// file. Reading it would put the old rules in force beside the new ones.
func IsBackup(name string) bool {
	name = path.Base(name)
	if strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#") {
		return true
	}
	return slices.ContainsFunc([]string{"~", ".bak", ".old", ".orig", ".rej", ".swp", ".swo"}, func(ending string) bool {
		return strings.HasSuffix(name, ending)
	})
}

// reportOthers says that objects hold no rules. Where no rules were found at all, that is an error.
func (p *parser) reportOthers() {
	others := p.objects.others
	if len(others) == 0 {
		return
	}
	if !p.objects.found && !p.objects.gateway {
		for _, o := range others {
			p.fail("", o.at, "no rules stand in this %s: %s", o.name, o.remedy)
		}
		return
	}
	names := make([]string, len(others))
	for i, o := range others {
		names[i] = o.name
	}
	const few = 5
	if more := len(names) - few; more > 0 {
		names = append(names[:few], fmt.Sprintf("%d more", more))
	}
	p.diagnostics = append(p.diagnostics, rules.Diagnostic{
		Pos: p.pos(others[0].at), Severity: rules.Note, Message: "not read, since no rules stand in them: " + strings.Join(names, ", "),
	})
}
