package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestDockerfileMakesTheSameImage compares the Dockerfile's last stage, without its comments, with
// the image that the program builds.
func TestDockerfileMakesTheSameImage(t *testing.T) {
	text, err := os.ReadFile(source + "/Dockerfile")
	check(t, err)
	file, err := onlyImage(t, readLayout(t, built)).ConfigFile()
	check(t, err)
	_, last, _ := strings.Cut(string(text), "\nFROM scratch\n")
	last = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(last, "")
	last = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(last, "")
	if want := lastStage(t, file.Config); last != want {
		t.Errorf("the last stage of the Dockerfile is\n%s\nwant\n%s", last, want)
	}
}

// lastStage returns the instructions for an image of the files in /image.
func lastStage(t *testing.T, config v1.Config) string {
	t.Helper()
	var labels, ports []string
	for _, name := range []string{"title", "description", "url", "source", "documentation", "licenses", "version", "revision", "created"} {
		name = "org.opencontainers.image." + name
		labels = append(labels, fmt.Sprintf("%s=%q", name, config.Labels[name]))
	}
	if len(labels) != len(config.Labels) {
		t.Errorf("the image has other labels: %v", config.Labels)
	}
	for port := range config.ExposedPorts {
		ports = append(ports, strings.TrimSuffix(port, "/tcp"))
	}
	slices.Sort(ports)
	entrypoint, err := json.Marshal(config.Entrypoint)
	check(t, err)
	arguments := strings.NewReplacer(`"v1.2.3"`, `"$VERSION"`, `"`+revision+`"`, `"$REVISION"`, `"`+committed+`"`, `"$COMMIT_DATE"`)
	return "ARG VERSION=dev\nARG REVISION\nARG COMMIT_DATE\nLABEL " + arguments.Replace(strings.Join(labels, " ")) +
		"\nCOPY --from=build /image/ /\nWORKDIR " + config.WorkingDir + "\nUSER " + config.User +
		"\nEXPOSE " + strings.Join(ports, " ") + "\nENTRYPOINT " + string(entrypoint) + "\n"
}

// TestGoVersions compares the Go version in the Dockerfile with the one in go.mod.
func TestGoVersions(t *testing.T) {
	text, err := os.ReadFile(source + "/Dockerfile")
	check(t, err)
	pinned := regexp.MustCompile(`(?m)^ARG GO_VERSION=(\d+\.\d+)\.\d+$`).FindSubmatch(text)
	mod, err := os.ReadFile(source + "/go.mod")
	check(t, err)
	needed := regexp.MustCompile(`(?m)^go (\d+\.\d+)\.\d+$`).FindSubmatch(mod)
	if pinned == nil || needed == nil || string(pinned[1]) != string(needed[1]) {
		t.Errorf("the Dockerfile builds with Go %s, but go.mod requires %s", pinned, needed)
	}
}

// TestDockerignoreIncludesSources checks that .dockerignore includes all sources of sluice.
func TestDockerignoreIncludesSources(t *testing.T) {
	text, err := os.ReadFile(source + "/.dockerignore")
	check(t, err)
	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/sluice")
	list.Dir = source
	out, err := list.Output()
	check(t, err)
	wanted := []string{"go.mod", "go.sum", "Makefile", "LICENSE", "tools"}
	for line := range strings.Lines(string(out)) {
		if within, ok := strings.CutPrefix(strings.TrimSpace(line), strings.TrimSuffix(mainPackage, "cmd/sluice")); ok {
			folder, _, _ := strings.Cut(within, "/")
			wanted = append(wanted, folder)
		}
	}
	for _, name := range wanted {
		if !strings.Contains(string(text), "\n!"+name+"\n") {
			t.Errorf(".dockerignore excludes %s", name)
		}
	}
}
