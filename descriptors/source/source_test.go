package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
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

// poll calls applyChanges. next is called between two snapshots.
func poll(ctx context.Context, g *Group, next func()) {
	g.betweenSnapshots = next
	g.applyChanges(ctx)
}

// follow loads the paths and runs a source until the test ends, in a bubble of synctest.
func follow(t *testing.T, opt Options, paths ...string) (first Update, updates <-chan Update) {
	t.Helper()
	ch := make(chan Update, 100)
	opt.Paths = paths
	opt.Settle = 5 * time.Millisecond
	opt.OnLoad = func(u Update) error { ch <- u; return u.Err }
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
	synctest.Test(t, func(t *testing.T) {
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
	})
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
			poll(t.Context(), s.asGroup(), func() {})
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
	poll(t.Context(), s.asGroup(), func() {})
	if len(got) != 2 || got[1].Set == nil || len(got[1].Set.Limits) != 0 {
		t.Errorf("updates = %+v, want an empty set", got)
	}
}

// TestSourceStartsEmpty starts with an empty directory, which StartEmpty permits.
func TestSourceStartsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first, updates := follow(t, Options{StartEmpty: true}, dir)
		if first.Set == nil || first.Err != nil {
			t.Fatalf("Load = %+v, want an empty set", first)
		}
		write(t, rulesOf(1), dir, "a.yaml")
		awaitVersion(t, updates, 1)
		must.OK(t, os.Remove(filepath.Join(dir, "a.yaml")))
		await(t, updates, "the removal of all files", func(u Update) bool { return u.Err != nil })
	})
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
	poll(t.Context(), s.asGroup(), next)
	if len(got) != 1 || versionOf(got[0]) != 3 {
		t.Errorf("updates = %+v, want only version 3", got)
	}
	// A change that is reverted is not reported.
	parts = []string{rulesOf(4), rulesOf(3)}
	next()
	poll(t.Context(), s.asGroup(), next)
	if len(got) != 1 {
		t.Errorf("updates = %+v, want none for a reverted change", got[1:])
	}
}

// TestSourceLooksAtFiles changes a file in size and time, which Run sees long before it reads files
// that look the same.
func TestSourceLooksAtFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		write(t, rulesOf(1), dir, "a.yaml")
		_, updates := follow(t, Options{}, dir)
		for v := 10; v <= 100_000; v *= 10 {
			synctest.Wait()
			began := time.Now()
			write(t, rulesOf(v), dir, "a.yaml")
			awaitVersion(t, updates, v)
			if took := time.Since(began); took > 2*lookInterval {
				t.Errorf("the change was active after %v, want at most %v", took, 2*lookInterval)
			}
		}
	})
}

// TestAllErrorsAtOnce has errors of each file by itself, and errors about several descriptors, files
// and lists. A descriptor with an error has no further one.
func TestAllErrorsAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, "domain: shop\ndescriptors:\n"+
		"  - { key: user, rate_limit: { unit: minute, requests_per_unit: 2 } }\n"+
		"  - { key: user, rate_limit: { unit: minute, requests_per_unit: 3 } }\n"+
		"  - { key: user, valeu: x }\n"+
		"  - key: a\n    descriptors:\n      - { key: b, share_threshold: true, valeu: x }\n      - { key: c }\n      - { key: c }\n"+
		"  - { key: d, rate_limit: &broken { unit: hours, requests_per_unit: 3 } }\n"+
		"  - { key: e, rate_limit: *broken }\n", dir, "a.yaml")
	write(t, "domain: shop\n", dir, "b.yaml")
	_, ds, err := Load([]string{dir}, "", descriptors.Options{})
	must.OK(t, err)
	var got []string
	for _, d := range ds {
		text, _, _ := strings.Cut(d.Message, ";")
		got = append(got, fmt.Sprintf("%s:%d: %s", filepath.Base(d.Pos.File), d.Pos.Line, text))
	}
	want := []string{
		"a.yaml:4: duplicate key and value on this level",
		`a.yaml:5: unknown field "valeu" in a descriptor`,
		`a.yaml:8: unknown field "valeu" in a descriptor`,
		"a.yaml:10: duplicate key and value on this level",
		`a.yaml:11: unknown unit "hours"`,
		"b.yaml:1: duplicate domain, first at " + filepath.Join(dir, "a.yaml") + ":1:1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
}

// TestOnlyCommandsReadEnvoyGatewayObjects checks that Load makes rules of Envoy Gateway's objects,
// in several files, while a service rejects them and names their source: a route that is missing in
// the files would not be limited.
func TestOnlyCommandsReadEnvoyGatewayObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}
