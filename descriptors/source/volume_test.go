package source

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/descriptors/volumetest"
)

// mount updates a mounted ConfigMap. It may run on another goroutine than the test.
func mount(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := volumetest.Update(dir, files); err != nil {
		t.Error(err)
	}
}

// TestEveryStepOfVolumeUpdate reads a mounted ConfigMap of two files after each step of a hundred
// updates. In every second update the kubelet is killed after a step, each step in turn, and starts
// again. The active rules must be the old or the new version of all files: the old one until ..data
// is replaced, and the new one at the end. Errors are allowed only while names are added or
// removed.
func TestEveryStepOfVolumeUpdate(t *testing.T) {
	dir := t.TempDir()
	// files returns the names of a version. The second name changes with every third version.
	files := func(version int) map[string]string {
		f := map[string]string{}
		for _, name := range []string{"a", fmt.Sprint("b", version/3)} {
			f[name+".yaml"] = fmt.Sprintf("domain: %s\ndescriptors:\n  - key: k\n    rate_limit: {unit: hour, requests_per_unit: %d}\n", name[:1], version)
		}
		return f
	}
	mount(t, dir, files(1))
	active, rejected := 0, 0
	activate := func(u Update) error {
		if u.Err != nil {
			rejected++
			return u.Err
		}
		var versions []int
		for _, l := range u.Set.Limits {
			versions = append(versions, int(l.RequestsPerUnit))
		}
		if len(versions) != 2 || versions[0] != versions[1] || !slices.Equal(u.Set.Domains(), []string{"a", "b"}) {
			t.Fatalf("limits of versions %v of domains %q are active, want two of one", versions, u.Set.Domains())
		}
		active = versions[0]
		return nil
	}
	s := NewFiles(Options{Paths: []string{dir}, Settle: time.Nanosecond, OnLoad: activate})
	start(t, s)
	checks, crash, latest := 0, 0, 0
	for version := 2; version <= 101; version++ {
		before, renamed := active, version/3 != (version-1)/3
		rejected = 0
		play := func(steps []volumetest.Step) {
			swapped := false
			for _, step := range steps {
				if err := step.Do(); err != nil {
					t.Fatalf("version %d: %s: %v", version, step.Name, err)
				}
				swapped = swapped || step.Name == volumetest.Swap
				poll(t.Context(), s.asGroup(), func() {})
				checks++
				if active != before && (active != version || !swapped) {
					t.Fatalf("version %d, after %q: version %d is active, want %d, or the new one after the swap", version, step.Name, active, before)
				}
				before = active
			}
		}
		steps := func() []volumetest.Step { return volumetest.Steps(dir, files(version), version%4 < 2) }
		if version%2 == 0 {
			all := steps()
			crash = crash%len(all) + 1
			latest = max(latest, crash)
			play(all[:crash])
		}
		play(steps())
		if active != version {
			t.Fatalf("after all steps version %d is active, want %d", active, version)
		}
		if rejected > 0 && !renamed {
			t.Errorf("version %d: %d errors, want none where names stay", version, rejected)
		}
	}
	if latest < 15 || checks < 1500 {
		t.Errorf("%d checks, crashes up to step %d: want more", checks, latest)
	}
}

// TestVolumeWithRulesAndTables has a directory of rules that contains the file of a table, like a
// ConfigMap with both.
func TestVolumeWithRulesAndTables(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, map[string]string{"rules.yaml": rulesOf(1), "t.csv": tableOf(1)})
	t.Chdir(filepath.Dir(dir))
	all := new(tables.Registry)
	if _, err := all.Add("t", filepath.Join(filepath.Base(dir), "t.csv")); err != nil { // a relative path
		t.Fatal(err)
	}
	opt := descriptors.Options{Tables: all, TablesLater: true}
	if set, found, err := Load([]string{dir}, "", opt); set == nil || len(found) > 0 || err != nil {
		t.Fatalf("%v, %v, %v; want only the rules", set, found, err)
	}
	loads := 0
	s := NewFiles(Options{Paths: []string{dir}, Options: opt, Settle: time.Nanosecond, OnLoad: func(u Update) error {
		loads++
		return u.Err
	}})
	start(t, s)
	for i, step := range []struct {
		rules, rows, loads int
	}{{1, 2, 1}, {2, 3, 2}, {2, 4, 2}} {
		mount(t, dir, map[string]string{"rules.yaml": rulesOf(step.rules), "t.csv": tableOf(step.rows)})
		poll(t.Context(), s.asGroup(), func() {})
		if loads != step.loads || s.reload.LastError() != nil {
			t.Errorf("step %d: the rules were loaded %d times, last with the error %v, want %d times", i, loads, s.reload.LastError(), step.loads)
		}
	}
}
