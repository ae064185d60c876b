package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// TestReadme holds that the README's rules load and that every flag and variable
// in it exists.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		if !strings.HasPrefix(block[1], "domain:") {
			continue // Envoy's
		}
		rules++
		configs, found := descriptors.Parse("README.md", []byte(block[1]))
		_, more := descriptors.Compile(configs, descriptors.Options{})
		for _, f := range append(found, more...) {
			t.Errorf("%v in\n%s", f, block[1])
		}
	}
	if rules < 2 {
		t.Errorf("%d blocks of rules, want 2 or more", rules)
	}

	parser, err := newParser(new(cli), "sluice", console{})
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"help"}
	if err := kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			flags = append(flags, flag.Name)
		}
		return next(nil)
	}); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("[ `]--([a-z][a-z-]+)").FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(flags, m[1]) {
			t.Errorf("there is no flag --%s", m[1])
		}
	}
	// Variables in the table of flags are those that work.
	for _, m := range regexp.MustCompile("(?m)^\\| `--.*$").FindAllString(string(text), -1) {
		for _, name := range regexp.MustCompile("`([A-Z][A-Z_]+)`").FindAllStringSubmatch(m, -1) {
			if v := lookUp(name[1]); v == nil || v.status != supported {
				t.Errorf("variable %s has no effect", name[1])
			}
		}
	}
}
