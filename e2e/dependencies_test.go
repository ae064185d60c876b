package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

const module = "github.com/sluice-ratelimit/sluice"

// maxDependencies is the maximum number of modules that the shipped programs import directly,
// because we have to follow the updates and vulnerabilities of each.
const maxDependencies = 17

// groupedModules are modules that are updated together and count once.
var groupedModules = []string{"go.opentelemetry.io", "charm.land", "github.com/charmbracelet"}

// TestDependenciesAreDocumented compares go.mod with the table in DESIGN.md. A module counts if a
// package linked into a command imports it, on any system. Modules imported only by tests and e2e
// do not count.
func TestDependenciesAreDocumented(t *testing.T) {
	imported := importedModules(shippedPackages(listPackages(t, "")), requiredModules(t))
	for _, system := range []string{"darwin", "windows"} {
		maps.Copy(imported, importedModules(shippedPackages(listPackages(t, system)), requiredModules(t)))
	}
	design, err := os.ReadFile("../DESIGN.md")
	must.OK(t, err)
	for _, why := range dependencyErrors(imported, documentedModules(string(design))) {
		t.Error(why)
	}
	t.Logf("%d direct dependencies, at most %d", len(imported), maxDependencies)
}

func TestDependencyErrors(t *testing.T) {
	const table = "| m | w |\n## Dependencies\n\n| module | what for |\n| --- | --- |\n" +
		"| example.com/a, example.com/b/v2 | all |\n| go.opentelemetry.io/otel and /contrib | spans |\n\nOnly tests import example.com/t.\n"
	all := []goPackage{
		{ImportPath: module + "/cmd/x", Name: "main", Imports: []string{"fmt", "example.com/a/sub", module + "/lib"}},
		{ImportPath: module + "/lib", Name: "lib", Imports: []string{"example.com/b/v2", "go.opentelemetry.io/contrib/b3", "go.opentelemetry.io/otel/trace"}},
		{ImportPath: module + "/lib/fake", Name: "fake", Imports: []string{"example.com/t"}},
		{ImportPath: module + "/e2e/y", Name: "main", Imports: []string{"example.com/t/sub"}},
	}
	require := []string{"example.com/a", "example.com/b/v2", "example.com/t", "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/trace", "go.opentelemetry.io/contrib/b3"}
	check := func(all []goPackage, require []string) []string {
		return dependencyErrors(importedModules(shippedPackages(all), require), documentedModules(table))
	}
	if got := check(all, require); len(got) != 0 {
		t.Errorf("errors without a mistake: %q", got)
	}

	planted := append(slices.Clone(all), goPackage{ImportPath: module + "/cmd/z", Name: "main", Imports: []string{"example.com/planted/v3/sub"}})
	if got := check(planted, append(slices.Clone(require), "example.com/planted/v3", "example.com/plant")); len(got) != 1 || !strings.Contains(got[0], "example.com/planted/v3") {
		t.Errorf("errors with a module that is not in the table: %q", got)
	}
	if got := check(all[1:], require); len(got) != 3 {
		t.Errorf("errors with an unused module in the table: %q", got)
	}
	many := map[string]string{}
	rows := map[string]bool{}
	for i := range maxDependencies + 1 {
		many[fmt.Sprint("example.com/", i)] = module
		rows[fmt.Sprint("example.com/", i)] = true
	}
	if got := dependencyErrors(many, rows); len(got) != 1 || !strings.Contains(got[0], "at most") {
		t.Errorf("errors with one too many: %q", got)
	}
}

// dependencyErrors returns the differences between imported modules, each with a package that
// imports it, and those in DESIGN.md.
func dependencyErrors(imported map[string]string, rows map[string]bool) []string {
	var why []string
	for _, path := range slices.Sorted(maps.Keys(imported)) {
		if !rows[path] {
			why = append(why, fmt.Sprintf("%s imports %s, which has no line in DESIGN.md's table of dependencies", imported[path], path))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(rows)) {
		if imported[path] == "" {
			why = append(why, fmt.Sprintf("DESIGN.md's table of dependencies has %s, which no command imports", path))
		}
	}
	if len(imported) > maxDependencies {
		why = append(why, fmt.Sprintf("%d direct dependencies: at most %d", len(imported), maxDependencies))
	}
	return why
}

// shippedPackages returns the packages that commands are built from, without the programs of e2e.
func shippedPackages(all []goPackage) []goPackage {
	byPath := make(map[string]goPackage, len(all))
	var next []string
	for _, p := range all {
		byPath[p.ImportPath] = p
		if p.Name == "main" && !strings.HasPrefix(p.ImportPath, module+"/e2e/") {
			next = append(next, p.ImportPath)
		}
	}
	var found []goPackage
	for len(next) > 0 {
		p, ok := byPath[next[0]]
		delete(byPath, next[0])
		next = next[1:]
		if ok {
			found = append(found, p)
			next = append(next, p.Imports...)
		}
	}
	return found
}

// importedModules returns the required modules that packages import, each with a package that
// imports it.
func importedModules(from []goPackage, require []string) map[string]string {
	found := map[string]string{}
	for _, p := range from {
		for _, imported := range p.Imports {
			longest := ""
			for _, path := range require {
				if isUnder(imported, path) && len(path) > len(longest) {
					longest = path
				}
			}
			if longest != "" {
				found[groupOf(longest)] = p.ImportPath
			}
		}
	}
	return found
}

// groupOf returns the module or group that a module counts as.
func groupOf(path string) string {
	for _, one := range groupedModules {
		if isUnder(path, one) {
			return one
		}
	}
	return path
}

var modulePath = regexp.MustCompile(`[a-z0-9-]+\.[a-z0-9.-]+/[^\s,]+`)

// documentedModules returns the modules in the first column of DESIGN.md's table of dependencies.
func documentedModules(design string) map[string]bool {
	_, section, _ := strings.Cut(design, "\n## Dependencies\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]bool{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, path := range modulePath.FindAllString(cells[1], -1) {
				rows[groupOf(path)] = true
			}
		}
	}
	return rows
}

// requiredModules returns the modules in go.mod, including indirect ones.
func requiredModules(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", "../go.mod").Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod struct{ Require []struct{ Path string } }
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("parse the output of go mod edit: %v", err)
	}
	var paths []string
	for _, r := range mod.Require {
		paths = append(paths, r.Path)
	}
	return paths
}

// isUnder reports whether path is root or below it.
func isUnder(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

type goPackage struct {
	ImportPath string
	Name       string
	Imports    []string
}

// listPackages returns our packages as built for a system (GOOS), "" for this one.
func listPackages(t *testing.T, system string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Imports", module+"/...")
	if system != "" {
		cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			if len(all) == 0 {
				t.Fatal("go list printed no package")
			}
			return all
		case err != nil:
			t.Fatalf("parse the output of go list: %v", err)
		}
		all = append(all, p)
	}
}
