package rulefile

import (
	"cmp"
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

// configMap reads the files of a ConfigMap as if it were mounted.
func (p *parser) configMap(content []byte, n *yaml.Node) (configs []rules.Config) {
	files := map[string]*yaml.Node{}
	var isRules bool
	if data, _ := lookUp(n, "data"); data != nil && data.Kind == yaml.MappingNode {
		for _, f := range p.fields("", data, func(key *yaml.Node) (string, bool) { return key.Value, true }) {
			if !strings.HasPrefix(f.name, ".") { // mounted files with such names are skipped
				files[f.name] = f.value
				isRules = isRules || f.value.Kind == yaml.ScalarNode && rulesAtMargin.MatchString(f.value.Value)
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
			p.note(text, NotReadBackup)
		default:
			configs = append(configs, p.embedded(content, text)...)
		}
	}
	return configs
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
	unread := p.objects.unread
	var names []string
	for _, o := range unread {
		names = append(names, o.name)
		if !p.objects.found && !p.objects.gateway {
			p.fail("", o.at, "no rules in this %s: %s", o.name, o.remedy)
		}
	}
	if len(unread) > 0 && (p.objects.found || p.objects.gateway) {
		p.note(unread[0].at, "not read, since they contain no rules: "+rules.Shorten(strings.Join(names, ", ")))
	}
}
