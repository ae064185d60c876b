package rulefile

import (
	"math"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/envoygateway"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Parse reads the rules in content, one [rules.Config] per YAML document. File is the
// name that diagnostics print.
//
// It checks each document by itself and reports every finding, in the order of lines. If
// one is an error, it returns no Configs. descriptors.Compile checks what only several
// nodes or documents show together, such as duplicates.
//
// Values are typed as envoyproxy/ratelimit types them (YAML 1.1: `on` and `yes`
// are booleans, `1_000` and `0x10` numbers), so that a file means here what it
// means there.
//
// A document may also be an object of Kubernetes: each file below the data of a ConfigMap
// is read, and places are those in content. Objects without rules are an error if no
// others have any.
func Parse(file string, content []byte) ([]rules.Config, rules.Diagnostics) {
	return ParseObjects(file, content, nil)
}

// ParseObjects does what [Parse] does, and puts aside the objects that Envoy Gateway makes rules of, unless gateway is
// nil. [envoygateway.Objects.Rules] has the rules once all files are read.
func ParseObjects(file string, content []byte, gateway *envoygateway.Objects) ([]rules.Config, rules.Diagnostics) {
	p, configs := parse(file, content, findLongList(content, pieceBytes), gateway)
	if l := p.list; l != nil && (l.broken || l.node == nil) {
		p, configs = parse(file, content, nil, gateway)
	}
	ds := p.sorted()
	if ds.HasErrors() {
		configs = nil
	}
	return configs, ds
}

// parse reads the rules in content. Its list, if not nil, is read in pieces.
func parse(file string, content []byte, list *longList, gateway *envoygateway.Objects) (*parser, []rules.Config) {
	p := newParser(file, content)
	p.gateway = gateway
	configs := p.read(content, list)
	p.reportOthers()
	return p, configs
}

// read reads the rules in content. It reads objects of Kubernetes only where no object is around it.
func (p *parser) read(content []byte, list *longList) []rules.Config {
	p.list = list
	var configs []rules.Config
	p.documents(content, "rules", func(root *yaml.Node) {
		if list != nil {
			list.attach(root)
		}
		if p.place == nil {
			if found, is := p.object(content, root); is {
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
	n = p.follow(n)
	c := rules.Config{Pos: p.pos(n)}
	if n.Kind != yaml.MappingNode {
		p.fail("", n, `the file must be a map with "domain" and "descriptors", not %s`, kindName(n))
		return c
	}
	fields := p.fields("", n, wordText)
	if p.kubernetesObject(n) {
		return c
	}
	path := documentPath(fields)
	at, ok := n, true
	for _, f := range fields {
		switch f.word {
		case "domain":
			c.Domain, ok = p.text(path, f)
			at = f.value
		case "descriptors":
			c.Descriptors = p.descriptors(path, f)
		case "all_or_nothing":
			c.AllOrNothing = new(p.newBool(path, f))
		case "max_counters":
			most, _ := p.number(path, f, 1, math.MaxUint32)
			c.MaxCounters = int64(most)
		default:
			ok = p.stray(path, rootWords, f) != "domain" && ok
		}
	}
	if ok && c.Domain == "" {
		p.fail("", at, `"domain" is missing or empty; every document of rules names its domain`)
	}
	return c
}
