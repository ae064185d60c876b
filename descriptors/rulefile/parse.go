package rulefile

import (
	"math"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/envoygateway"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Parse reads the rules in content, one [rules.Config] for each YAML document. file is the name in
// diagnostics.
//
// It checks each document by itself and reports all findings, in the order of lines. It omits
// documents without a domain and descriptors with errors. descriptors.Compile checks what involves
// several nodes or documents, such as duplicates.
//
// Values have the types of envoyproxy/ratelimit (YAML 1.1: `on` and `yes` are booleans, `1_000` and
// `0x10` numbers), so that a file means the same to both.
//
// A document may also be a Kubernetes object: Parse reads each file in the data of a ConfigMap, and
// reports places in content. Objects without rules are an error unless others have some.
func Parse(file string, content []byte) ([]rules.Config, rules.Diagnostics) {
	return ParseObjects(file, content, nil)
}

// ParseObjects is [Parse], and adds the objects from which Envoy Gateway makes rules to gateway,
// unless that is nil. [envoygateway.Objects.Rules] returns their rules once all files are read.
func ParseObjects(file string, content []byte, gateway *envoygateway.Objects) ([]rules.Config, rules.Diagnostics) {
	p, configs := parse(file, content, gateway)
	ds := p.sorted()
	if ds.HasErrors() {
		configs = slices.DeleteFunc(configs, func(c rules.Config) bool { return c.Domain == "" || p.stopped })
	}
	return configs, ds
}

// RangeFiles returns the files of ranges that the rules in content name, as written there.
func RangeFiles(file string, content []byte) []string {
	p, _ := parse(file, content, nil)
	return p.rangeFiles
}

// parse reads the rules in content, a long list in pieces.
func parse(file string, content []byte, gateway *envoygateway.Objects) (*parser, []rules.Config) {
	p, configs := parseWith(file, content, findLongList(content, pieceBytes), gateway)
	if l := p.list; l != nil && (l.broken || l.node == nil) {
		return parseWith(file, content, nil, gateway)
	}
	return p, configs
}

// parseWith reads the rules in content. list, if not nil, is read in pieces.
func parseWith(file string, content []byte, list *longList, gateway *envoygateway.Objects) (*parser, []rules.Config) {
	p := newParser(file, content)
	p.gateway = gateway
	configs := p.read(content, list)
	p.reportUnreadObjects()
	return p, configs
}

// read reads the rules in content. It does not read Kubernetes objects that are embedded in
// another.
func (p *parser) read(content []byte, list *longList) []rules.Config {
	p.list = list
	var configs []rules.Config
	p.documents(content, "rules", func(root *yaml.Node) {
		if list != nil {
			list.findNode(root)
		}
		if p.mapPos == nil {
			if found, ok := p.object(content, root); ok {
				configs = append(configs, found...)
				return
			}
		}
		p.objects.found = true
		configs = append(configs, p.document(root))
		configs[len(configs)-1].Allowances = p.allowances
	})
	return configs
}

func (p *parser) document(n *yaml.Node) rules.Config {
	n = p.resolveAlias(n)
	c := rules.Config{Pos: p.pos(n)}
	if n.Kind != yaml.MappingNode {
		p.fail("", n, `the file must be a map with "domain" and "descriptors", not %s`, kindName(n))
		return c
	}
	fields := p.fields("", n, fieldName)
	if p.kubernetesObject(n) {
		return c
	}
	path := documentPath(fields)
	at := n
	ok := true
	for _, f := range fields {
		switch f.name {
		case "domain":
			c.Domain, ok = p.text(path, f)
			at = f.value
		case "descriptors":
			c.Descriptors = p.descriptors(path, f)
		case "denied_response":
			c.Denied = p.deniedResponse(path, f)
		case "exempt":
			c.Exempt = p.exemptions(path, f)
		case "all_or_nothing":
			c.AllOrNothing = new(p.strictBool(path, f))
		case "max_counters":
			maxCounters, _ := p.number(path, f, 1, math.MaxUint32)
			c.MaxCounters = int64(maxCounters)
		default:
			ok = p.reportUnknownField(path, rootFields, f) != "domain" && ok
		}
	}
	if ok && c.Domain == "" {
		p.fail("", at, `"domain" is missing or empty; every document of rules names its domain`)
	}
	return c
}
