package api

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// TestNormalizedForms checks that values which Envoy accepts in several forms are normalized.
func TestNormalizedForms(t *testing.T) {
	for text, want := range map[string]string{"yes": "true", "{ value: OFF }": "false", "{ value: 7 }": "7", "'7'": "7", "0x10": "16"} {
		x := valueOf(t, text)
		if good := kinds["bool"].accepts(x) || kinds["number"].accepts(x); !good || x.Text != want || x.Name != "x" {
			t.Errorf("%s is read as %q of %q, want %q", text, x.Text, x.Name, want)
		}
	}
	if x := valueOf(t, "'on'"); normalizeBoolean(x) {
		t.Error("a quoted on is read as a boolean")
	}
	for text, want := range map[string]string{"{ seconds: 2, nanos: 500000000 }": "2.5s", "{ nanos: 1 }": "0.000000001s", "1s": "1s", "500ms": "0.5s", ".25s": "0.25s"} {
		if d := valueOf(t, text); !normalizeDuration(d) || d.Text != want {
			t.Errorf("%s is read as %q, want %q", text, d.Text, want)
		}
	}
	for _, text := range []string{"-1s", "1", "1S", "'1 s'"} {
		if d := valueOf(t, text); normalizeDuration(d) {
			t.Errorf("%s is read as %q, want an error", text, d.Text)
		}
	}
}

func valueOf(t *testing.T, text string) *tree.Node {
	t.Helper()
	roots, err := tree.Read("f", []byte("x: "+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return roots[0].Field("x")
}

// TestFieldNamesExist checks that each field name in envoyconfig's code is in the schema.
func TestFieldNamesExist(t *testing.T) {
	known := map[string]bool{"@type": true}
	for _, fields := range messages() {
		for name := range fields {
			known[name] = true
		}
	}
	// Field names of other formats.
	for name := range strings.FieldsSeq(`configs bootstrap resources spec data items json_patches kind operation resource api_version type_url apply_to vhost route_configuration cluster_name listener route_config ecds_filter active_state matchers tls_certificate validation_context generic_secret target_uri server_names drop_overloads drop_percentage subset_selectors fallback_policy text skip_if_error extension_config xds_matcher endpoint socket_address port_value envoy_internal_address server_listener_name`) {
		known[name] = true
	}
	sources, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`\.(?:Field|At)\(("[^)]*")\)`).FindAllStringSubmatch(string(code), -1) {
			for name := range strings.SplitSeq(call[1], ", ") {
				if name, ok := strings.CutPrefix(name, `"`); ok {
					if found++; !known[strings.TrimSuffix(name, `"`)] {
						t.Errorf("%s reads %q, which no message has", source, strings.TrimSuffix(name, `"`))
					}
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("%d names found in %s", found, slices.Sorted(slices.Values(sources)))
	}
}
