package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// documents calls visit for the root of every document. kind names the content of the file in
// messages: rules or defaults.
func (p *parser) documents(content []byte, kind string, visit func(root *yaml.Node)) {
	if len(content) > maxFileBytes {
		p.report("", "", 1, 1, fmt.Sprintf("the file is larger than %d MiB", maxFileBytes>>20))
		return
	}
	if i := invalidUTF8(content); i >= 0 {
		line := 1 + bytes.Count(content[:i], []byte("\n"))
		col := i - bytes.LastIndexByte(content[:i], '\n')
		p.report("", "", line, col, fmt.Sprintf("byte 0x%02x is not valid UTF-8; save the file as UTF-8", content[i]))
		return
	}
	if p.list != nil {
		content = p.list.head
	}
	loader, err := yaml.NewLoader(bytes.NewReader(content))
	if err != nil {
		p.report("", "", 1, 1, err.Error())
		return
	}
	var (
		empty *yaml.Node
		found bool
		gaps  []*yaml.Node // empty documents before another document
	)
	for {
		var doc yaml.Node
		if err := loader.Load(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			if p.list != nil {
				p.list.broken = true // parsing the whole file may give another error
				return
			}
			p.syntaxError(content, err)
			return
		}
		if isEmptyDocument(&doc) {
			if empty == nil {
				empty = &doc
			}
			continue
		}
		if empty != nil {
			gaps = append(gaps, empty)
			empty = nil
		}
		found = true
		visit(doc.Content[0])
	}
	if !p.objects.any { // helm template prints empty documents between objects
		for _, gap := range gaps {
			p.fail("", gap, "this YAML document is empty; only the last one of a file may be")
		}
	}
	if !found {
		p.report("", "", 1, 1, fmt.Sprintf(`no %s in the file; it must have at least "domain"`, kind))
	}
}

func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// isEmptyDocument reports whether a document has nothing but comments.
func isEmptyDocument(doc *yaml.Node) bool {
	if len(doc.Content) == 0 {
		return true
	}
	n := doc.Content[0]
	return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style == 0 && n.Anchor == ""
}

// documentPath returns the path of a document in diagnostics, "" if it has no domain.
func documentPath(fields []field) string {
	if domain := lastText(fields, "domain"); domain != "" {
		return rules.DomainPath(domain)
	}
	return ""
}

// kubernetesObject reports an error if a document is a Kubernetes object, which defaults and
// embedded texts must not be.
func (p *parser) kubernetesObject(n *yaml.Node) bool {
	if !isObject(n) {
		return false
	}
	where := ""
	_, at := lookUp(n, "data")
	if at == nil {
		at = n.Content[0]
	} else {
		where = `; its files are below "data": mount it as a volume, or give sluice only that text`
	}
	p.fail("", at, "this is a Kubernetes object, %s%s", objectName(n), where)
	return true
}
