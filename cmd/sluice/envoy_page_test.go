package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEnvoyCheckPage runs each command of docs/envoy-check.md, on the files that the page
// shows and those of the repository. What a command prints is what the page says; with
// -update the page says what it prints.
func TestEnvoyCheckPage(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "docs/envoy-check.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"examples", "envoy.yaml"} {
		if err := os.Symlink(filepath.Join(root, name), name); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n# (\\S+)\n.*?^```").FindAllStringSubmatch(string(page), -1) {
		text := strings.TrimSuffix(strings.TrimPrefix(m[0], "```yaml\n"), "```")
		if err := os.WriteFile(m[1], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ran := 0
	printed := regexp.MustCompile("(?ms)^```console\n(\\$ .*?)^```").ReplaceAllStringFunc(string(page), func(block string) string {
		command, _, _ := strings.Cut(strings.TrimPrefix(block, "```console\n$ "), "\n")
		var out bytes.Buffer
		run(t.Context(), words(command), console{strings.NewReader(""), &out, &out})
		ran++
		return "```console\n$ " + command + "\n" + out.String() + "```"
	})
	if diff := cmp.Diff(string(page), printed); diff != "" && !*update {
		t.Errorf("docs/envoy-check.md (-page +printed); if it should, run go test ./cmd/sluice -run TestEnvoyCheckPage -update:\n%s", diff)
	} else if diff != "" {
		if err := os.WriteFile(path, []byte(printed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if ran < 4 {
		t.Errorf("the page has %d commands, want 4 or more", ran)
	}
}

// words parts a command as a shell does that knows single quotes only.
func words(command string) []string {
	var all []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}
