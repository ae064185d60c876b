package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/descriptors/volumetest"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// grouped is a volume with rules and two tables that one Group follows.
type grouped struct {
	t       *testing.T
	dir     string
	group   *Group
	rules   int // active versions
	rows    [2]int
	changes []Change
}

// volumeOf returns the files of a volume. Version -1 is an invalid file.
func volumeOf(rules, first, second int) map[string]string {
	files := map[string]string{"rules.yaml": rulesOf(rules), "0.csv": tableOf(first), "1.csv": tableOf(second)}
	if rules < 0 {
		files["rules.yaml"] = "domain: ["
	}
	return files
}

func newGrouped(t *testing.T, settle time.Duration, files map[string]string) *grouped {
	t.Helper()
	w := &grouped{t: t, dir: t.TempDir()}
	w.mount(files)
	member := func(name string) *TableFile {
		return NewTableFile(TableOptions{Table: tables.New(name), Path: filepath.Join(w.dir, name+".csv")})
	}
	rules := NewFiles(Options{Paths: []string{filepath.Join(w.dir, "rules.yaml")}, Settle: settle})
	w.group = NewGroup(rules, []*TableFile{member("0"), member("1")}, w.apply)
	return w
}

func (w *grouped) mount(files map[string]string) {
	w.t.Helper()
	must.OK(w.t, volumetest.Update(w.dir, files))
}

func (w *grouped) apply(c Change) error {
	w.changes = append(w.changes, c)
	if c.Rules != nil && c.Rules.Err == nil {
		w.rules = versionOf(*c.Rules)
	}
	for _, u := range c.Tables {
		if u.Err == nil {
			row, _ := u.Rows.Get([]string{"a"})
			w.rows[u.Table.Name()[0]-'0'] = int(row.RequestsPerUnit)
		}
	}
	if c.Rules != nil {
		return c.Rules.Err
	}
	return nil
}

// poll calls next after the first snapshot.
func (w *grouped) poll(next func()) { poll(w.t.Context(), w.group, next) }

func (w *grouped) expect(when string, rules, first, second int) {
	w.t.Helper()
	if got, want := fmt.Sprint(w.rules, w.rows), fmt.Sprint(rules, [2]int{first, second}); got != want {
		w.t.Errorf("%s: the versions of the rules and of the rows are %s, want %s", when, got, want)
	}
}

// TestVolumeUpdateIsOneChange replaces a volume at each point at which its files are observed.
func TestVolumeUpdateIsOneChange(t *testing.T) {
	w := newGrouped(t, time.Nanosecond, volumeOf(1, 1, 1))
	must.OK(t, w.group.Load(t.Context()))
	w.expect("at first", 1, 1, 1)
	for version := 2; version < 20; version++ {
		steps := volumetest.Steps(w.dir, volumeOf(version, version, version), version%2 > 0)
		for len(steps) > 0 {
			w.poll(func() {
				if len(steps) > 0 {
					must.OK(t, steps[0].Do())
					steps = steps[1:]
				}
			})
			if len(steps) > 0 { // otherwise the check began before the change
				must.OK(t, steps[0].Do())
				steps = steps[1:]
			}
			if w.rules != w.rows[0] || w.rules != w.rows[1] {
				t.Fatalf("rules of version %d are active with rows of the versions %v", w.rules, w.rows)
			}
		}
		w.poll(func() {})
		w.expect("at the end", version, version, version)
	}
}

// TestChangingFilesDelayOthers checks that files that keep changing delay other files by at most
// maxUnstableRounds.
func TestChangingFilesDelayOthers(t *testing.T) {
	w := newGrouped(t, time.Nanosecond, volumeOf(1, 1, 1))
	must.OK(t, w.group.Load(t.Context()))
	busy := filepath.Join(w.dir, "0.csv")
	write(t, rulesOf(2), w.dir, "rules.yaml")
	write(t, tableOf(2), busy)
	rounds := 0
	ctx, cancel := context.WithCancel(t.Context())
	poll(ctx, w.group, func() {
		if rounds++; rounds > 2*maxUnstableRounds {
			cancel()
		}
		write(t, tableOf(2)+fmt.Sprint("b,", rounds), busy)
		must.OK(t, os.Truncate(busy, int64(len(tableOf(2))+rounds)))
	})
	w.expect("while a table is written", 2, 1, 1)
	if len(w.changes) != 2 {
		t.Errorf("%d changes are loaded, want the first and the change of the rules", len(w.changes))
	}
	w.poll(func() {})
	if last := w.changes[len(w.changes)-1]; last.Rules != nil || len(last.Tables) != 1 {
		t.Errorf("after the writer stopped, the change has rules %v and %d tables, want only the table", last.Rules, len(last.Tables))
	}
}

// TestTornSnapshots observes a volume that keeps changing, each time between reading its rules and its
// tables: two snapshots in a row always agree on some members and never on all of them.
func TestTornSnapshots(t *testing.T) {
	w := newGrouped(t, time.Nanosecond, volumeOf(1, 1, 1))
	must.OK(t, w.group.Load(t.Context()))
	w.mount(volumeOf(2, 1, 1))
	const rounds = 5 * maxUnstableRounds
	for round := 0; round <= rounds; {
		w.poll(func() {
			if round++; round > rounds {
				return
			}
			version := round/2 + 2
			w.mount(volumeOf(version+round%2, version, version))
			w.expect("while the volume changes", 1, 1, 1)
		})
	}
	w.expect("at the end", rounds/2+2, rounds/2+2, rounds/2+2)
}

// TestGroupReportsChangedMembers changes members one by one.
func TestGroupReportsChangedMembers(t *testing.T) {
	w := newGrouped(t, time.Nanosecond, volumeOf(1, 1, 1))
	must.OK(t, w.group.Load(t.Context()))
	for i, step := range []struct {
		change func()
		rules  bool
		tables []string
		err    bool
	}{
		{func() { write(t, rulesOf(2), w.dir, "rules.yaml") }, true, nil, false},
		{func() { write(t, tableOf(22), w.dir, "0.csv") }, false, []string{"0"}, false},
		{func() { write(t, tableOf(-1), w.dir, "1.csv") }, false, []string{"1"}, true},
		{func() { w.mount(volumeOf(-1, 3, 3)) }, true, []string{"0", "1"}, true},
		{func() { _ = os.Remove(filepath.Join(w.dir, "1.csv")) }, false, []string{"1"}, true},
		{func() { write(t, rulesOf(4), w.dir, "rules.yaml") }, true, nil, false}, // a missing table is reported once
	} {
		w.changes = nil
		step.change()
		w.poll(func() {})
		w.poll(func() {})
		if len(w.changes) != 1 {
			t.Fatalf("step %d: %d changes, want one", i, len(w.changes))
		}
		c := w.changes[0]
		failed := c.Rules != nil && c.Rules.Err != nil
		var names []string
		for _, u := range c.Tables {
			names, failed = append(names, u.Table.Name()), failed || u.Err != nil
		}
		if (c.Rules != nil) != step.rules || !slices.Equal(names, step.tables) || failed != step.err {
			t.Errorf("step %d: rules %v, tables %v, failed %v; want %v, %v, %v", i, c.Rules != nil, names, failed, step.rules, step.tables, step.err)
		}
	}
}

// mountUnfinished mounts a second version of a volume in which a table does not end with a newline.
func (w *grouped) mountUnfinished(table string) {
	w.t.Helper()
	files := volumeOf(2, 2, 2)
	files[table] = strings.TrimSuffix(files[table], "\n")
	w.mount(files)
}

// TestRulesWaitForUnfinishedTable replaces a volume by one with a table that does not end with a
// newline.
func TestRulesWaitForUnfinishedTable(t *testing.T) {
	w := newGrouped(t, time.Nanosecond, volumeOf(1, 1, 1))
	must.OK(t, w.group.Load(t.Context()))
	w.mountUnfinished("0.csv")
	rounds := 0
	w.poll(func() {
		w.expect("while a table is unfinished", 1, 1, 1)
		if rounds++; rounds > 2*maxUnstableRounds {
			w.group.tables[0].unchanged = func() time.Duration { return unfinishedTime }
		}
	})
	w.expect("when the table has not changed for some time", 2, 2, 2)
	if len(w.changes) != 2 {
		t.Errorf("%d changes are loaded, want two", len(w.changes))
	}
}

// TestUnfinishedTableDoesNotRereadOthers checks that a complete table, which may be large, is not
// read while another is unfinished.
func TestUnfinishedTableDoesNotRereadOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGrouped(t, settled, volumeOf(1, 1, 1))
		opened := 0
		complete := w.group.tables[0]
		complete.open = func(path string) (tableSource, error) {
			opened++
			return openTable(path)
		}
		for _, step := range []struct {
			name string
			take func()
		}{
			{"at a reload", func() { w.poll(func() {}) }},
			{"at the start", func() { check(t, w.group.Load(t.Context())) }},
		} {
			w.mount(volumeOf(1, 1, 1))
			check(t, w.group.Load(t.Context()))
			w.mountUnfinished("1.csv")
			opened = 0
			checkDuration(t, unfinishedTime, unfinishedTime+3*settled, step.take)
			w.expect(step.name, 2, 2, 2)
			if opened > 2 {
				t.Errorf("%s: the complete file was read %d times, want at most twice", step.name, opened)
			}
		}
	})
}

// TestRulesKeepChangingAtStart checks that the error names the path of the rules, and that the
// tables are loaded.
func TestRulesKeepChangingAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGrouped(t, settled, volumeOf(1, 1, 1))
		version := 1
		w.group.tables[0].open = func(path string) (tableSource, error) {
			version++
			write(t, rulesOf(version), w.dir, "rules.yaml")
			return openTable(path)
		}
		checkDuration(t, startTime, startTime+2*settled, func() {
			want := "read " + filepath.Join(w.dir, "rules.yaml") + ": the file keeps changing; write to another file and rename it"
			if err := w.group.Load(t.Context()); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		})
		w.expect("after the start", 0, 1, 1)
	})
}
