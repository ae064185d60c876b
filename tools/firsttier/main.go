// Command firsttier reports uses of the real clock in the tests that `make test` runs: sleeps, timers,
// deadlines and measured durations outside a bubble of testing/synctest. Such a test fails under load.
//
//	go -C tools run ./firsttier ..
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// proxy is the package of e2e in the first tier.
const proxy = "e2e/proxy"

// helpers are packages without tests of their own that serve tests of the first tier.
var helpers = []string{
	"store/storetest", "server/servertest", "server/testcert", "descriptors/volumetest", "xds/adstest",
	"e2e/suite", "e2e/sluice", "e2e/envoy", "e2e/process", "e2e/backend", "internal/effort", "internal/must",
}

// allowed maps "directory.function call" to the reason why it may use the real clock.
var allowed = map[string]string{
	"cmd/sluice.listenWhenFree time.NewTicker":                paces,
	"cmd/sluice.waitForPage time.Sleep":                       paces,
	"internal/must.Eventually time.NewTicker":                 paces,
	"rlqs.AcquireLeadership Before with time.Now()":           bubble,
	"rlqs.TestAtMostOneLeader time.Sleep":                     bubble,
	"rlqs.TestDomainRemovedAndRestored time.Sleep":            bubble,
	"rlqs.TestLeadershipExpires time.Sleep":                   bubble,
	"rlqs.TestResignDuringRenewal time.Sleep":                 bubble,
	"server.TestBridgedCallsAreCancelled context.WithTimeout": "a deadline that must pass; it doubles until the call has begun",
	"server.TestCollectorThatHangs context.WithTimeout":       "a deadline that must pass",
	"server/daemon.Await time.After":                          bubble,
	"server/daemon.Await time.Until":                          bubble,
	"server/leases.TestEventsEndLeases time.Sleep":            bubble,
	"store.request time.Since":                                bubble,
	"store.send time.Sleep":                                   bubble,
	"xds.TestChangesArePaced time.Sleep":                      bubble,
}

// Reasons.
const (
	bubble = "the function is only called in a bubble"
	paces  = "the pace of a wait without a bound"
)

func main() {
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	findings, err := check(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "firsttier:", err)
		os.Exit(2)
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}

// check returns the findings in the main module at root.
func check(root string) ([]finding, error) {
	packages := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return descend(root, path, entry.Name())
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if dir := filepath.ToSlash(filepath.Dir(rel)); inFirstTier(dir, entry.Name()) {
			packages[dir] = append(packages[dir], path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all []finding
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		p := newPackage(dir)
		for _, path := range packages[dir] {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if err := p.add(dir+"/"+filepath.Base(path), text); err != nil {
				return nil, err
			}
		}
		all = append(all, p.findings()...)
	}
	return all, nil
}

// descend skips what is not a package of the main module.
func descend(root, path, name string) error {
	if path == root {
		return nil
	}
	if strings.HasPrefix(name, ".") || name == "testdata" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func inFirstTier(dir, name string) bool {
	if !strings.HasSuffix(name, ".go") {
		return false
	}
	test := strings.HasSuffix(name, "_test.go")
	if slices.Contains(helpers, dir) && !test || dir == proxy {
		return true
	}
	return test && dir != "e2e" && !strings.HasPrefix(dir, "e2e/")
}

// compiled reports whether a file with this text is part of a build without tags.
func compiled(name string, text []byte) (bool, error) {
	context := build.Default
	context.BuildTags = nil
	context.OpenFile = opener(text)
	return context.MatchFile(filepath.Dir(name), filepath.Base(name))
}

// A finding is one use of the real clock.
type finding struct {
	dir      string
	position token.Position
	function string
	call     string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s in %s uses the real clock in the first tier of tests: wait for the event, "+
		"or move the test to a file with //go:build more",
		f.position.Filename, f.position.Line, f.call, f.function)
}

func isRoot(name string, exported bool) bool {
	for _, prefix := range []string{"Test", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "init" || name == "main" || exported && ast.IsExported(name)
}

func parse(files *token.FileSet, name string, text []byte) (*ast.File, error) {
	return parser.ParseFile(files, name, text, parser.SkipObjectResolution)
}
