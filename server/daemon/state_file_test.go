package daemon

import (
	"bufio"
	"context"
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
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/internal/file"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// stateVariable is the environment variable with the state file of a child process.
const stateVariable = "STATE_FILE"

// savedIDs returns n counters. A child process charges each once between two saves, so that all
// have the same hits in a consistent snapshot.
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

// chargeAll charges the counters and returns the hits that each had before. It fails the test if
// these differ.
func chargeAll(t *testing.T, table *limiter.Table, ids []identity.ID, hits uint64) uint64 {
	t.Helper()
	before := uint64(0)
	for i, id := range ids {
		b := &limiter.Batch{Charges: []limiter.Charge{{ID: id, Policy: &savedPolicy, Hits: hits}}}
		table.Decide(savedAt, b)
		if got := b.Decisions[0].Before; i > 0 && got != before {
			t.Fatalf("a counter has %d hits, and another one %d", got, before)
		} else {
			before = got
		}
	}
	return before
}

// TestSaveUntilKilled is the child process of the tests below. Otherwise it does nothing.
func TestSaveUntilKilled(t *testing.T) {
	path := os.Getenv(stateVariable)
	if path == "" {
		return // not a child process
	}
	file.IgnoreSizeSignal()
	table, ids := loadState(t, path), savedIDs(2000)
	for {
		chargeAll(t, table, ids, 1)
		if err := file.Replace(path, 0o600, func(w io.Writer) error {
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

// TestKilledWhileSaving kills a process while it saves. The file must be complete, and contain at
// least the hits of the last save that the process reported.
func TestKilledWhileSaving(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	ids, least := savedIDs(2000), uint64(0)
	for round := range 20 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSaveUntilKilled$")
		child.Env = append(os.Environ(), stateVariable+"="+path, "TMPDIR="+t.TempDir()) // it does not remove its temporary files
		out, err := child.StdoutPipe()
		must.OK(t, err)
		must.OK(t, child.Start())
		saves := uint64(0)
		for lines := bufio.NewScanner(out); saves < 1+rand.Uint64N(5) && lines.Scan(); saves++ {
			if lines.Text() != "saved" {
				t.Errorf("the child prints %q", lines.Text())
			}
		}
		_ = child.Process.Kill() // anywhere in the next save
		_ = child.Wait()
		got := chargeAll(t, loadState(t, path), ids, 0)
		if least += saves; got < least || saves == 0 {
			t.Fatalf("round %d: counters have %d hits, want at least %d", round, got, least)
		}
		least = got
	}
}

// TestStateFileTooLarge verifies that a save that exceeds the file size limit keeps the previous
// file.
func TestStateFileTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	must.OK(t, os.WriteFile(path, nil, 0o600))
	table, ids := loadState(t, filepath.Join(t.TempDir(), "none")), savedIDs(2000)
	chargeAll(t, table, ids, 3)
	if err := file.Replace(path, 0o600, func(w io.Writer) error {
		_, err := table.Save(w, savedAt)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -f 16; exec "$0" "$@"`, os.Args[0], "-test.run=^TestSaveUntilKilled$")
	child.Env = append(os.Environ(), stateVariable+"="+path)
	out, err := child.Output()
	if !strings.Contains(string(out), "saved: write counters: ") || !strings.Contains(string(out), "file too large") {
		t.Errorf("the child exits with %v and prints %q", err, out)
	}
	if got := chargeAll(t, loadState(t, path), ids, 0); got != 3 {
		t.Errorf("counters have %d hits, want 3", got)
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a temporary file is left: %v", err)
	}
}

// TestSaveFailsTemporarily verifies that the first failure and the recovery are logged, and that
// every failure is counted.
func TestSaveFailsTemporarily(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	must.OK(t, os.Mkdir(dir, 0o700))
	metrics, err := telemetry.New(telemetry.Options{})
	must.OK(t, err)
	core, logs := observer.New(zap.InfoLevel)
	options := StateOptions{File: filepath.Join(dir, "state"), Interval: time.Minute}
	_, s, err := options.openTable(limiter.Options{}, metrics, metrics.Events.Watch(zap.New(core)))
	if err != nil || s == nil {
		t.Fatal(s, err)
	}
	t.Cleanup(s.unlock)
	var logged []string
	for _, exists := range []bool{true, false, false, true, true, false} {
		if exists {
			err = os.MkdirAll(dir, 0o700)
		} else {
			err = os.RemoveAll(dir)
		}
		must.OK(t, err)
		s.save(s.logger.Debug)
		if codes := servertest.Conditions(metrics); (codes == "") != exists || !exists && codes != "state_not_saved" {
			t.Errorf("the directory exists: %t, and the conditions are %q", exists, codes)
		}
		for _, line := range logs.TakeAll() {
			logged = append(logged, line.Level.String()+" "+line.Message)
		}
	}
	const failed, saved = "error state: failed to save counters", "info state: counters saved"
	want := "info state: file does not exist yet; starting with empty counters|" + failed + "|" + saved + "|" + failed
	if got := strings.Join(logged, "|"); got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
	found, err := metrics.Registry.Gather()
	must.OK(t, err)
	for _, f := range found {
		if f.GetName() == "sluice_state_errors_total" && f.GetMetric()[0].GetCounter().GetValue() != 3 {
			t.Errorf("%v, want 3", f)
		}
	}
}

// TestFailedStartReleasesTheStateFile verifies that another daemon can use the file after a step of
// Run has failed.
func TestFailedStartReleasesTheStateFile(t *testing.T) {
	failed, file := errors.New("no rules"), filepath.Join(t.TempDir(), "state")
	for range 2 {
		metrics := servertest.Metrics(t)
		d, err := New(Options{
			Metrics: metrics, Logger: zap.NewNop(), Tables: new(tables.Registry), Counters: limiter.Options{Bytes: 1 << 20},
			State: StateOptions{File: file, Interval: time.Minute}, Settings: answer.Settings{Bounds: servertest.Bounds(answer.Bounds{})},
		})
		must.OK(t, err)
		if d.state == nil {
			t.Fatal("the file is locked")
		}
		if err := d.Run(t.Context(), Steps{FollowRules: func(context.Context, *errgroup.Group) error { return failed }}); !errors.Is(err, failed) {
			t.Errorf("Run() = %v, want %v", err, failed)
		}
	}
}
