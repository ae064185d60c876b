package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// content fails the test if a file does not have it.
func content(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); string(got) != want || err != nil {
		t.Errorf("%s has %q, %v, want %q", path, got, err, want)
	}
}

// A file is replaced whole or stays, and nothing is left beside it.
func TestReplaceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string, err error) error {
		return replaceFile(path, 0o600, func(w io.Writer) error {
			_, werr := io.WriteString(w, text)
			return errors.Join(err, werr)
		})
	}
	alone := func() {
		t.Helper()
		if found, err := os.ReadDir(filepath.Dir(path)); len(found) != 1 || err != nil {
			t.Errorf("the directory has %v, %v, want the file alone", found, err)
		}
	}
	must.OK(t, write("old", nil))
	content(t, path, "old")
	broken := errors.New("broken")
	if err := write("half", broken); !errors.Is(err, broken) {
		t.Errorf("replaceFile() = %v", err)
	}
	content(t, path, "old")
	alone()

	// What a dead process left is replaced, and a link there is not written through.
	victim := filepath.Join(t.TempDir(), "victim")
	must.OK(t, errors.Join(os.WriteFile(victim, []byte("kept"), 0o600), os.Symlink(victim, path+".new")))
	must.OK(t, errors.Join(os.Chmod(path, 0o644), write("new", nil)))
	content(t, path, "new")
	content(t, victim, "kept")
	alone()
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
}

// TestStateFileBehindLinks has a link in a directory that is itself a link: the file is where the kernel finds it.
func TestStateFileBehindLinks(t *testing.T) {
	root := t.TempDir()
	dir := func(name string) string { return filepath.Join(root, name) }
	if err := errors.Join(
		os.MkdirAll(dir("volume/mounted"), 0o700), os.MkdirAll(dir("volume/data"), 0o700), os.Mkdir(dir("data"), 0o700),
		os.Symlink("volume/mounted", dir("link")), os.Symlink("../data/state", dir("link/state")),
		os.Symlink("link/../data/next", dir("first")), os.Symlink("state", dir("volume/data/next")),
	); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"link/state", "first"} {
		if got, want := resolveLinks(dir(path)), dir("volume/data/state"); got != want {
			t.Errorf("%s leads to %s, want %s", path, got, want)
		}
	}
	for _, path := range []string{"state", dir("link/none"), dir("none/state")} {
		if got := resolveLinks(path); got != path {
			t.Errorf("%s leads to %s, want the path itself", path, got)
		}
	}
}

// stateVariable tells a child of these tests which file to save to.
const stateVariable = "STATE_FILE"

// savedIDs are counters that a child hits once between two saves, so that a snapshot of one
// moment has the same hits of all.
func savedIDs(n int) (ids []identity.ID) {
	h := identity.Key{1}.Hasher()
	for i := range n {
		h := h
		h.AddWord(uint64(i))
		ids = append(ids, h.Sum())
	}
	return ids
}

var savedPolicy = limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1 << 30, Window: 7 * 24 * time.Hour}

const savedAt = limiter.Time(1_700_000_000_000_000_000)

// hitAll charges counters, and returns the hits that they had if they had the same.
func hitAll(t *testing.T, table *limiter.Table, ids []identity.ID, hits uint64) uint64 {
	t.Helper()
	before := uint64(0)
	for i, id := range ids {
		b := &limiter.Batch{Charges: []limiter.Charge{{ID: id, Policy: &savedPolicy, Hits: hits}}}
		table.Decide(savedAt, b)
		if got := b.Decisions[0].Before; i > 0 && got != before {
			t.Fatalf("a counter has %d hits where others have %d", got, before)
		} else {
			before = got
		}
	}
	return before
}

// TestSavesUntilKilled is what a child does.
func TestSavesUntilKilled(t *testing.T) {
	path := os.Getenv(stateVariable)
	if path == "" {
		return // it is no child
	}
	ignoreFileSizeSignal()
	table, ids := loadState(t, path), savedIDs(2000)
	for {
		hitAll(t, table, ids, 1)
		if err := replaceFile(path, 0o600, func(w io.Writer) error {
			_, err := table.Save(w, savedAt)
			return err
		}); err != nil {
			fmt.Println("saved:", err)
			return
		}
		fmt.Println("saved")
	}
}

// loadState loads a file, or returns a new table if there is none.
func loadState(t *testing.T, path string) *limiter.Table {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		table, err := limiter.New(limiter.Options{})
		must.OK(t, err)
		return table
	}
	must.OK(t, err)
	defer f.Close()
	table, _, err := limiter.Load(f, limiter.Options{})
	must.OK(t, err)
	return table
}

// A process that is killed while it saves leaves a whole file, with no less than it had.
func TestKilledWhileSaving(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	ids, least := savedIDs(2000), uint64(0)
	for round := range 20 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSavesUntilKilled$")
		child.Env = append(os.Environ(), stateVariable+"="+path, "TMPDIR="+t.TempDir()) // it leaves its files there
		out, err := child.StdoutPipe()
		must.OK(t, err)
		must.OK(t, child.Start())
		told := uint64(0)
		for lines := bufio.NewScanner(out); told < 1+rand.Uint64N(5) && lines.Scan(); told++ {
			if lines.Text() != "saved" {
				t.Errorf("the child says %q", lines.Text())
			}
		}
		_ = child.Process.Kill() // anywhere in the next save
		_ = child.Wait()
		got := hitAll(t, loadState(t, path), ids, 0)
		if least += told; got < least || told == 0 {
			t.Fatalf("round %d: counters have %d hits, want %d at least", round, got, least)
		}
		least = got
	}
}

// What may not be written, for want of room, leaves what there was.
func TestNoRoomForTheState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	must.OK(t, os.WriteFile(path, nil, 0o600))
	table, ids := loadState(t, filepath.Join(t.TempDir(), "none")), savedIDs(2000)
	hitAll(t, table, ids, 3)
	if err := replaceFile(path, 0o600, func(w io.Writer) error {
		_, err := table.Save(w, savedAt)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -f 16; exec "$0" "$@"`, os.Args[0], "-test.run=^TestSavesUntilKilled$")
	child.Env = append(os.Environ(), stateVariable+"="+path)
	out, err := child.Output()
	if !strings.Contains(string(out), "saved: write counters: ") || !strings.Contains(string(out), "file too large") {
		t.Errorf("the child ends with %v and says %q", err, out)
	}
	if got := hitAll(t, loadState(t, path), ids, 0); got != 3 {
		t.Errorf("counters have %d hits, want 3", got)
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a file is left: %v", err)
	}
}

// One line says that saving fails, one that it works again, and each failure is counted.
func TestSavingFailsForAWhile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	must.OK(t, os.Mkdir(dir, 0o700))
	metrics, err := telemetry.New(telemetry.Options{})
	must.OK(t, err)
	core, logs := observer.New(zap.InfoLevel)
	flags := stateFlags{File: filepath.Join(dir, "state"), Interval: time.Minute}
	_, s, err := flags.openTable(limiter.Options{}, metrics, metrics.Events.Watch(zap.New(core)))
	if err != nil || s == nil {
		t.Fatal(s, err)
	}
	t.Cleanup(s.unlock)
	var told []string
	for _, there := range []bool{true, false, false, true, true, false} {
		if there {
			err = os.MkdirAll(dir, 0o700)
		} else {
			err = os.RemoveAll(dir)
		}
		must.OK(t, err)
		s.save(s.logger.Debug)
		if codes := activeCodes(metrics); (codes == "") != there || !there && codes != "state_not_saved" {
			t.Errorf("the directory is there: %t, and the conditions are %q", there, codes)
		}
		for _, line := range logs.TakeAll() {
			told = append(told, line.Level.String()+" "+line.Message)
		}
	}
	const failed, saved = "error state: failed to save counters", "info state: counters saved"
	want := "info state: file does not exist yet; starting with empty counters|" + failed + "|" + saved + "|" + failed
	if got := strings.Join(told, "|"); got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	found, err := metrics.Registry.Gather()
	must.OK(t, err)
	for _, f := range found {
		if f.GetName() == "sluice_state_errors_total" && f.GetMetric()[0].GetCounter().GetValue() != 3 {
			t.Errorf("%v, want 3", f)
		}
	}
}
