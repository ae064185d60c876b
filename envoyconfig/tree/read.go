package tree

import (
	"fmt"
	"maps"
	"unicode/utf8"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// maxBytes is the size of the largest file that is read.
const maxBytes = 1 << 30

// Read returns the documents of a JSON or YAML file, and adds the acknowledgements in its comments to allowances.
func Read(name string, content []byte, allowances rules.Allowances) ([]Node, error) {
	if len(content) > maxBytes {
		return nil, fmt.Errorf("%s: larger than %d MiB", name, maxBytes>>20)
	}
	if !utf8.Valid(content) {
		return nil, fmt.Errorf("%s: not valid UTF-8", name)
	}
	if n, err := parseJSON(name, content); err == nil {
		return []Node{n}, nil // JSON has no comments
	}
	maps.Copy(allowances, rules.FindAllowances(name, content))
	roots, err := parseYAML(name, content)
	if err != nil {
		return nil, yamlError(name, err)
	}
	return roots, nil
}
