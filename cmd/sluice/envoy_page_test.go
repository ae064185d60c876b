package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestEnvoyCheckPage runs each command of docs/envoy-check.md.
func TestEnvoyCheckPage(t *testing.T) {
	runPage(t, "docs/envoy-check.md", 3)
}

// TestSimulatePage runs each command of docs/simulate.md on logs that are generated as the page
// describes.
func TestSimulatePage(t *testing.T) {
	effort.Require(t, effort.More)
	root, err := filepath.Abs("../..")
	must.OK(t, err)
	t.Chdir(t.TempDir())
	for name, args := range map[string][]string{"access.log": nil, "incumbent.log": {"-limit", "300"}} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "./docs/traffic"}, args...)...)
		cmd.Dir = root
		log, err := cmd.Output()
		must.OK(t, err)
		must.OK(t, os.WriteFile(name, log, 0o600))
	}
	runPageIn(t, root, "docs/simulate.md", 4)
}

// hashedKeys matches hashes of keys, which differ in each run.
var hashedKeys = regexp.MustCompile(`#[0-9a-f]{8}\b`)

func runPage(t *testing.T, page string, least int) {
	t.Helper()
	root, err := filepath.Abs("../..")
	must.OK(t, err)
	t.Chdir(t.TempDir())
	runPageIn(t, root, page, least)
}

// runPageIn runs each command of a page in the current directory, with the files that the page
// shows and those of the repository. It compares the output with the page, or with -update writes
// it to the page.
func runPageIn(t *testing.T, root, name string, least int) {
	t.Helper()
	path := filepath.Join(root, name)
	page, err := os.ReadFile(path)
	must.OK(t, err)
	for _, name := range []string{"examples", "envoy.yaml"} {
		must.OK(t, os.Symlink(filepath.Join(root, name), name))
	}
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n# (\\S+)\n.*?^```").FindAllStringSubmatch(string(page), -1) {
		text := strings.TrimSuffix(strings.TrimPrefix(m[0], "```yaml\n"), "```")
		must.OK(t, os.WriteFile(m[1], []byte(text), 0o600))
	}
	ran := 0
	printed := regexp.MustCompile("(?ms)^```console\n(\\$ .*?)^```").ReplaceAllStringFunc(string(page), func(block string) string {
		command, _, _ := strings.Cut(strings.TrimPrefix(block, "```console\n$ "), "\n")
		var out bytes.Buffer
		run(t.Context(), arguments(command), console{strings.NewReader(""), &out, &out})
		ran++
		text := hashedKeys.ReplaceAllString(out.String(), "#1f8a24c7")
		return "```console\n$ " + command + "\n" + text + "```"
	})
	if diff := cmp.Diff(string(page), printed); diff != "" && !*update {
		t.Errorf("%s (-page +printed); if it should, run go test ./cmd/sluice -run %s -update:\n%s", name, t.Name(), diff)
	} else if diff != "" {
		must.OK(t, os.WriteFile(path, []byte(printed), 0o600))
	}
	if ran < least {
		t.Errorf("%s has %d commands, want %d or more", name, ran, least)
	}
}

// arguments splits a command as a shell does. It supports single quotes only.
func arguments(command string) []string {
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
