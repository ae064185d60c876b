package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowedLicences are the SPDX identifiers of licences that components may have. They only require
// that their text is distributed too, which is in /usr/share/licenses of the image.
var allowedLicences = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// component is a module in the image.
type component struct {
	// version of the standard library is Go's.
	path, version string
	// licence is an SPDX licence expression.
	licence string
	// texts are the files of licences, notices and patents, by name.
	texts map[string][]byte
}

// standardLibrary is the name of Go's standard library in vulnerability databases.
const standardLibrary = "stdlib"

// licenceFile matches the files by which a module's licence is classified, noticeFile others that
// must be distributed too.
var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([-.].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)([-.].*)?$`)
)

// components returns the components of the image, sorted by path: the modules from which the
// program was built, the standard library and the authorities' module. It reads the licences from
// the modules of go.mod at source and of this module. It returns an error if their versions differ
// from those of the program, or if a licence is missing, unknown or not allowed.
func components(info *debug.BuildInfo, source string) ([]component, error) {
	versions := make(map[string]string)
	for _, dependency := range info.Deps {
		if dependency.Replace != nil {
			return nil, fmt.Errorf("the program has %s for %s: a release has no replacements", dependency.Replace.Path, dependency.Path)
		}
		versions[dependency.Path] = dependency.Version
	}
	modules, err := listModules(source, slices.Sorted(maps.Keys(versions))...)
	if err != nil {
		return nil, err
	}
	for _, m := range modules {
		if m.Version != versions[m.Path] {
			return nil, fmt.Errorf("the program was built from %s %s, but %s has %s: build it again", m.Path, versions[m.Path], filepath.Join(source, "go.mod"), m.Version)
		}
	}
	bundle, err := listModules(".", authoritiesModule)
	if err != nil {
		return nil, err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("get GOROOT: %w", err)
	}
	modules = append(modules, bundle...)
	modules = append(modules, goModule{
		Path: standardLibrary, Version: strings.TrimPrefix(info.GoVersion, "go"), Dir: strings.TrimSpace(string(root)),
	})
	var found []component
	for _, m := range modules {
		c, err := m.component()
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	slices.SortFunc(found, func(a, b component) int { return strings.Compare(a.path, b.path) })
	return found, nil
}

// goModule is a module and the directory of its files.
type goModule struct {
	Path, Version, Dir string
}

// listModules runs go list in root for the given module paths.
func listModules(root string, paths ...string) (modules []goModule, err error) {
	cmd := exec.Command("go", append([]string{"list", "-mod=readonly", "-m", "-f", "{{.Path}}\t{{.Version}}\t{{.Dir}}"}, paths...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules of %s: %w: %s", root, err, bytes.TrimSpace(stderr.Bytes()))
	}
	for line := range strings.Lines(string(out)) {
		path, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		version, dir, _ := strings.Cut(rest, "\t")
		modules = append(modules, goModule{path, version, dir})
	}
	return modules, nil
}

// component reads the licences of the module.
func (m goModule) component() (component, error) {
	c := component{path: m.Path, version: m.Version, texts: make(map[string][]byte)}
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return component{}, fmt.Errorf("read the licence of %s %s: %w", m.Path, m.Version, err)
	}
	var licences []string
	for _, entry := range entries {
		isLicence := licenceFile.MatchString(entry.Name())
		if entry.IsDir() || !isLicence && !noticeFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, entry.Name()))
		if err != nil {
			return component{}, err
		}
		c.texts[entry.Name()] = text
		if !isLicence {
			continue
		}
		ids, err := classify(text)
		if err != nil {
			return component{}, fmt.Errorf("%s of %s %s: %w", entry.Name(), m.Path, m.Version, err)
		}
		licences = append(licences, ids...)
	}
	if len(licences) == 0 {
		return component{}, fmt.Errorf("%s %s has no licence in %s", m.Path, m.Version, m.Dir)
	}
	slices.Sort(licences)
	c.licence = strings.Join(slices.Compact(licences), " AND ")
	return c, nil
}

// minCoverage is the minimum percentage of a file that must match known licences. pkg.go.dev uses
// the same value.
const minCoverage = 75

// classify returns the SPDX identifiers of the licences in text.
func classify(text []byte) ([]string, error) {
	coverage := licensecheck.Scan(text)
	var ids []string
	for _, match := range coverage.Match {
		if !slices.Contains(allowedLicences, match.ID) {
			return nil, fmt.Errorf("the licence is %s: must be one of %s", match.ID, strings.Join(allowedLicences, ", "))
		}
		ids = append(ids, match.ID)
	}
	if coverage.Percent < minCoverage {
		return nil, fmt.Errorf("%.0f %% of the text matches known licences (%s): must be %d %%", coverage.Percent, strings.Join(ids, ", "), minCoverage)
	}
	return ids, nil
}

// licenceTexts returns the licence files of all components, below dir.
func licenceTexts(dir string, all []component) tree {
	texts := tree{}
	for _, c := range all {
		for name, text := range c.texts {
			texts[path.Join(dir, c.path, name)] = file{content: text}
		}
	}
	return texts
}
