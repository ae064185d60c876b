package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rulesOf returns a rule file whose limit is the version.
func rulesOf(version int) string {
	return fmt.Sprintf("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: hour, requests_per_unit: %d}\n", version)
}

func versionOf(u Update) int {
	if u.Set == nil || len(u.Set.Limits) != 1 {
		return -1
	}
	return int(u.Set.Limits[0].RequestsPerUnit)
}

// follow loads the paths and runs a source until the test ends. It polls only once an hour, so that
// updates are due to notifications.
func follow(t *testing.T, opt Options, paths ...string) (first Update, updates <-chan Update) {
	t.Helper()
	ch := make(chan Update, 100)
	opt.Paths = paths
	opt.Settle = 5 * time.Millisecond
	opt.OnLoad = func(u Update) error { ch <- u; return u.Err }
	if opt.Poll == 0 {
		opt.Poll = time.Hour
	}
	opt.OnUnwatched = func(err error) { t.Errorf("unwatched: %v", err) }
	s := NewFiles(opt)
	err := s.Load()
	if first = <-ch; !errors.Is(err, first.Err) {
		t.Errorf("Load = %v, but OnLoad was called with %v", err, first.Err)
	}
	run(t, s)
	return first, ch
}

func start(t *testing.T, s *Files) {
	t.Helper()
	must.OK(t, s.Load())
}

func run(t *testing.T, s *Files) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// await waits for a wanted update. It skips others, since the source may observe a change in parts.
func await(t *testing.T, updates <-chan Update, what string, wanted func(Update) bool) Update {
	t.Helper()
	t.Logf("waiting for an update after %s", what)
	for {
		u := <-updates
		if wanted(u) {
			return u
		}
		t.Logf("skipped %+v", u)
	}
}

func awaitVersion(t *testing.T, updates <-chan Update, version int) {
	t.Helper()
	await(t, updates, fmt.Sprintf("version %d", version), func(u Update) bool { return versionOf(u) == version })
}

// TestSourceBadStart loads no files and then an invalid one. A server may start despite both.
func TestSourceBadStart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config", "rules.yaml")
	first, updates := follow(t, Options{}, path)
	if first.Set != nil || first.Err == nil {
		t.Fatalf("Load of nothing = %+v, want an error", first)
	}
	write(t, "domain: d\nbogus: 1\n", path)
	await(t, updates, "the bad file", func(u Update) bool {
		return u.Err != nil && strings.Contains(u.Err.Error(), path+`:2:1: error: domain "d": unknown field "bogus"`)
	})
	write(t, rulesOf(1), path)
	awaitVersion(t, updates, 1)
}

// TestSourceKeepsGoodRules checks that invalid rules are reported once, and that a return to the
// active rules reports the same Set.
func TestSourceKeepsGoodRules(t *testing.T) {
	dir := t.TempDir()
	write(t, rulesOf(1), dir, "a.yaml")
	var got []Update
	s := NewFiles(Options{
		Paths: []string{dir}, Settle: time.Nanosecond,
		OnLoad: func(u Update) error { got = append(got, u); return u.Err },
	})
	poll := func(want int) {
		t.Helper()
		for range 3 {
			s.applyChanges(t.Context(), &watcher{}, func() {})
		}
		if len(got) != want {
			t.Fatalf("%d updates, want %d: %+v", len(got), want, got)
		}
	}
	if err := s.Load(); err != nil || len(got) != 1 {
		t.Fatalf("Load = %v with %d updates, want one", err, len(got))
	}
	first := got[0]
	got = nil
	poll(0)
	write(t, "domain: [\n", dir, "a.yaml")
	poll(1)
	if u := got[0]; u.Set != nil || u.Err == nil || !strings.Contains(u.Err.Error(), "a.yaml:2:1") {
		t.Errorf("update = %+v, want the error of a.yaml", u)
	}
	write(t, "domain: {\n", dir, "a.yaml") // another error
	poll(2)
	write(t, rulesOf(1), dir, "a.yaml")
	poll(3)
	if u := got[2]; u.Set != first.Set || u.Err != nil {
		t.Errorf("update = %+v, want the set of Load again", u)
	}
	must.OK(t, os.Remove(filepath.Join(dir, "a.yaml")))
	poll(4)
	if u := got[3]; u.Set != nil || u.Err == nil || !strings.Contains(u.Err.Error(), dir) {
		t.Errorf("update = %+v, want an error for no files", u)
	}
	must.OK(t, os.Remove(dir))
	poll(5)
	if u := got[4]; u.Set != nil || !errors.Is(u.Err, os.ErrNotExist) {
		t.Errorf("update = %+v, want an error for the missing directory", u)
	}
	write(t, rulesOf(2), dir, "a.yaml")
	poll(6)
	if versionOf(got[5]) != 2 {
		t.Errorf("update = %+v, want version 2", got[5])
	}
}

func TestSourceAllowEmpty(t *testing.T) {
	dir := t.TempDir()
	write(t, rulesOf(1), dir, "a.yaml")
	var got []Update
	s := NewFiles(Options{
		Paths: []string{dir}, Settle: time.Nanosecond, AllowEmpty: true,
		OnLoad: func(u Update) error { got = append(got, u); return u.Err },
	})
	start(t, s)
	must.OK(t, os.Remove(filepath.Join(dir, "a.yaml")))
	s.applyChanges(t.Context(), &watcher{}, func() {})
	if len(got) != 2 || got[1].Set == nil || len(got[1].Set.Limits) != 0 {
		t.Errorf("updates = %+v, want an empty set", got)
	}
}

// TestSourceStartsEmpty starts with an empty directory, which StartEmpty permits.
func TestSourceStartsEmpty(t *testing.T) {
	dir := t.TempDir()
	first, updates := follow(t, Options{StartEmpty: true}, dir)
	if first.Set == nil || first.Err != nil {
		t.Fatalf("Load = %+v, want an empty set", first)
	}
	write(t, rulesOf(1), dir, "a.yaml")
	awaitVersion(t, updates, 1)
	must.OK(t, os.Remove(filepath.Join(dir, "a.yaml")))
	await(t, updates, "the removal of all files", func(u Update) bool { return u.Err != nil })
}

// TestSourceRequiresFile starts without a file, or without one that has the prefix.
func TestSourceRequiresFile(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		for prefix, want := range map[string]string{
			"":        "no file of rules in " + dir,
			"config.": "no file of rules in " + dir + ` whose relative path, with dots for slashes, begins with "config."`,
		} {
			err := NewFiles(Options{Paths: []string{dir}, Prefix: prefix, OnLoad: func(u Update) error { return u.Err }}).Load()
			if prefix == "" && len(entries(t, dir)) > 0 {
				if err != nil {
					t.Errorf("Load() = %v, want rules", err)
				}
			} else if err == nil || err.Error() != want {
				t.Errorf("Load() = %v, want %s", err, want)
			}
		}
		write(t, rulesOf(1), dir, "a.yaml")
	}
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	all, err := os.ReadDir(dir)
	must.OK(t, err)
	return all
}

// TestSourceWaitsForWriter has a writer that pauses twice. Each part is valid, so the source can
// detect it only by waiting.
func TestSourceWaitsForWriter(t *testing.T) {
	dir := t.TempDir()
	write(t, rulesOf(1), dir, "a.yaml")
	var got []Update
	s := NewFiles(Options{
		Paths: []string{dir}, Settle: time.Nanosecond,
		OnLoad: func(u Update) error { got = append(got, u); return u.Err },
	})
	start(t, s)
	got = nil
	parts := []string{"domain: d\n", rulesOf(2), rulesOf(3)}
	next := func() {
		if len(parts) > 0 {
			write(t, parts[0], dir, "a.yaml")
			parts = parts[1:]
		}
	}
	next()
	s.applyChanges(t.Context(), &watcher{}, next)
	if len(got) != 1 || versionOf(got[0]) != 3 {
		t.Errorf("updates = %+v, want only version 3", got)
	}
	// A change that is reverted is not reported.
	parts = []string{rulesOf(4), rulesOf(3)}
	next()
	s.applyChanges(t.Context(), &watcher{}, next)
	if len(got) != 1 {
		t.Errorf("updates = %+v, want none for a reverted change", got[1:])
	}
}

// TestSourcePolls runs without notifications.
func TestSourcePolls(t *testing.T) {
	dir := t.TempDir()
	write(t, rulesOf(1), dir, "a.yaml")
	updates, unwatched := make(chan Update, 100), make(chan error, 100)
	s := NewFiles(Options{
		Paths: []string{dir}, Poll: time.Millisecond, Settle: time.Millisecond,
		OnLoad:      func(u Update) error { updates <- u; return u.Err },
		OnUnwatched: func(err error) { unwatched <- err },
	})
	none := errors.New("no inotify")
	s.watch = func() (*watcher, error) { return nil, none }
	start(t, s)
	run(t, s)
	for v := 2; v <= 4; v++ {
		write(t, rulesOf(v), dir, "a.yaml")
		awaitVersion(t, updates, v)
	}
	if err := <-unwatched; !errors.Is(err, none) {
		t.Errorf("OnUnwatched was called with %v, want %v", err, none)
	}
	if len(unwatched) > 0 {
		t.Errorf("OnUnwatched was also called with %v, want one call", <-unwatched)
	}
}

func TestWatchedDirs(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must.OK(t, err)
	write(t, "", dir, "plain/rules.yaml")
	write(t, "", dir, "tree/a/b/rules.yaml")
	write(t, "", dir, "tree/.hidden/rules.yaml")
	write(t, "", dir, "far/away/rules.yaml")
	link(t, dir+"/far/away", dir, "links/away")
	link(t, "../links/away/rules.yaml", dir, "chain/rules.yaml")
	link(t, "loop", dir, "loops/loop")
	for _, tt := range []struct {
		path string
		want []string
	}{
		{"plain/rules.yaml", []string{"plain"}},
		{"plain", []string{"plain"}},
		{"plain/missing.yaml", []string{"plain"}},
		{"missing/deep/rules.yaml", []string{"."}},
		{"tree", []string{"tree", "tree/a", "tree/a/b"}},
		{"links/away", []string{"far/away", "links"}},
		{"links", []string{"far/away", "links"}},
		{"chain/rules.yaml", []string{"chain", "far/away", "links"}},
		{"chain", []string{"chain", "far/away", "links"}},
		{"loops/loop", []string{"loops"}},
	} {
		if diff := cmp.Diff(tt.want, relative(t, dir, watchedDirs([]string{filepath.Join(dir, tt.path)}))); diff != "" {
			t.Errorf("watchedDirs(%s) (-want +got):\n%s", tt.path, diff)
		}
	}
	for path, want := range map[string][]string{
		"plain/rules.yaml":   {"plain"},
		"plain/missing.yaml": {"plain"},
		"plain":              {"."},
		"tree":               {"."},
		"links/away":         {"links"},
		"chain/rules.yaml":   {"chain", "far/away", "links"},
		"loops/loop":         {"loops"},
	} {
		if diff := cmp.Diff(want, relative(t, dir, fileDirs(filepath.Join(dir, path)))); diff != "" {
			t.Errorf("fileDirs(%s) (-want +got):\n%s", path, diff)
		}
	}
}

// relative returns paths relative to dir.
func relative(t *testing.T, dir string, paths []string) (names []string) {
	t.Helper()
	for _, p := range paths {
		name, err := filepath.Rel(dir, p)
		must.OK(t, err)
		names = append(names, name)
	}
	return slices.Compact(names)
}

// TestOnlyCommandsReadEnvoyGatewayObjects checks that Load makes rules of Envoy Gateway's objects,
// in several files, while a service rejects them and names their source: a route that is missing in
// the files would not be limited.
func TestOnlyCommandsReadEnvoyGatewayObjects(t *testing.T) {
	dir := t.TempDir()
	write(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: { name: eg }\n"+
		"spec: { listeners: [{ name: http, protocol: HTTP, port: 80 }] }\n", dir, "a.yaml")
	write(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: { name: shop }\nspec: { parentRefs: [{ name: eg }] }\n---\n"+
		"apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: BackendTrafficPolicy\nmetadata: { name: shop }\n"+
		"spec: { targetRefs: [{ kind: HTTPRoute, name: shop }], rateLimit: { global: { rules: [{ limit: { requests: 1, unit: Hour } }] } } }\n", dir, "b.yaml")

	set, ds, err := Load([]string{dir}, "", descriptors.Options{})
	if err != nil || set == nil || ds.HasErrors() {
		t.Fatalf("Load = %v, %v, %v, want rules", set, ds, err)
	}
	var dump strings.Builder
	must.OK(t, set.Dump(&dump))
	if got, want := dump.String(), "default/eg/http.httproute/default/shop/rule/0/match/0/*_httproute/default/shop/rule/0/match/0/*.rule-0-match--1_rule-0-match--1"; !strings.Contains(got, want) {
		t.Errorf("Dump = %q, want %q in it", got, want)
	}
	first, _ := follow(t, Options{}, dir)
	if first.Set != nil || first.Err == nil || !strings.Contains(first.Err.Error(), "--xds-addr") {
		t.Errorf("Load of a service = %v, %v, want an error that names --xds-addr", first.Set, first.Err)
	}
}
