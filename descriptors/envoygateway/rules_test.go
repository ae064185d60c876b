package envoygateway_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/envoygateway"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

var update = flag.Bool("update", false, "rewrite testdata/*.want")

// TestRules compares the rules and findings of each file of objects with its .want file.
// testdata/theirs.py checks that Envoy Gateway generates the same rules.
func TestRules(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob = %v, %v, want files", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(file)
			must.OK(t, err)
			var objects envoygateway.Objects
			if configs, ds := rulefile.ParseObjects(filepath.Base(file), content, &objects); len(configs) > 0 || len(ds) > 0 {
				t.Fatalf("ParseObjects = %v, %v, want only Objects", configs, ds)
			}
			configs, ds := objects.Rules(false)
			if bad := strings.HasPrefix(name, "bad"); bad != ds.HasErrors() {
				t.Errorf("errors: %v, want %v: %v", ds.HasErrors(), bad, ds)
			}
			var b strings.Builder
			for _, c := range configs {
				fmt.Fprintf(&b, "%s:%d\n", c.Domain, c.Pos.Line)
				printRules(&b, "  ", c.Descriptors)
			}
			for _, d := range ds {
				fmt.Fprintln(&b, d)
			}
			want := strings.TrimSuffix(file, ".yaml") + ".want"
			if *update {
				must.OK(t, os.WriteFile(want, []byte(b.String()), 0o600))
				return
			}
			wanted, err := os.ReadFile(want)
			must.OK(t, err)
			if diff := cmp.Diff(string(wanted), b.String()); diff != "" {
				t.Errorf("Rules differ from %s (-want +got):\n%s", want, diff)
			}
		})
	}
}

func printRules(b *strings.Builder, indent string, descriptors []rules.Descriptor) {
	for _, d := range descriptors {
		fmt.Fprintf(b, "%s%s=%s", indent, d.Key, d.Value)
		for _, l := range d.RateLimits {
			fmt.Fprintf(b, " %d/%s shadow=%v line %d", l.RequestsPerUnit, l.Unit, rules.ValueOr(d.ShadowMode, false), l.Pos.Line)
		}
		fmt.Fprintln(b)
		printRules(b, indent+"  ", d.Descriptors)
	}
}

// TestObjectsNextToRuleFiles checks that objects without rules are not an error if there is a rule
// file.
func TestObjectsNextToRuleFiles(t *testing.T) {
	content := []byte("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: { name: eg }\n---\napiVersion: v1\nkind: Namespace\nmetadata: { name: n }\n")
	for _, found := range []bool{true, false} {
		var objects envoygateway.Objects
		if _, ds := rulefile.ParseObjects("o.yaml", content, &objects); len(ds) > 0 {
			t.Fatalf("ParseObjects = %v", ds)
		}
		if configs, ds := objects.Rules(found); len(configs) > 0 || ds.HasErrors() == found || len(ds) != 1 {
			t.Errorf("Rules(%v) = %v, %v, want one finding, which is an error unless there are rule files", found, configs, ds)
		}
	}
	var namespace envoygateway.Objects
	if _, ds := rulefile.ParseObjects("o.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata: { name: n }\n"), &namespace); len(ds) > 0 {
		t.Fatalf("ParseObjects = %v", ds)
	}
	if _, ds := namespace.Rules(true); len(ds) > 0 {
		t.Errorf("Rules of a Namespace next to a ConfigMap = %v, want nothing", ds)
	}
	var none envoygateway.Objects
	if configs, ds := none.Rules(false); len(configs)+len(ds) > 0 {
		t.Errorf("Rules of no objects = %v, %v, want nothing", configs, ds)
	}
}

// FuzzRules reads arbitrary objects. Each finding must have a position, and each rule must compile
// or cause an error with a position.
func FuzzRules(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	must.OK(f, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		must.OK(f, err)
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var objects envoygateway.Objects
		configs, found := rulefile.ParseObjects("f.yaml", content, &objects)
		if found.HasErrors() {
			return
		}
		made, ds := objects.Rules(len(configs) > 0)
		_, more := descriptors.Compile(made, descriptors.Options{})
		for _, d := range append(ds, more...) {
			if d.Pos.File != "f.yaml" || d.Pos.Line < 1 || d.Pos.Col < 1 || d.Message == "" {
				t.Errorf("diagnostic %v has no position or message", d)
			}
		}
	})
}
