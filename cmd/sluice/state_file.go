package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// stateFlags say whether counters outlive the process.
type stateFlags struct {
	File     string        `name:"state-file" placeholder:"PATH" help:"File to save counters to, so that they survive a restart. Its directory needs space for two copies, and no other process may write to it. Default: none."`
	Interval time.Duration `name:"state-interval" range:"1s..24h" default:"30s" placeholder:"TIME" help:"Interval at which counters are saved to --state-file, besides the save at exit. A crash loses at most the hits of one interval."`
	Leases   bool          `name:"state-file-leases" help:"Also restore leases (concurrency slots and reservations) from --state-file. A lease whose request ended while sluice was down, or after the last save before a crash, stays until the window of its limit or the ttl of its reserve ends. Default: leases are released, so up to N requests can run in addition to those from before the restart."`
}

func (f *stateFlags) check() error {
	if f.Leases && f.File == "" {
		return errors.New("--state-file-leases does nothing without --state-file")
	}
	return nil
}

var (
	errLocked = errors.New("another process has it locked")
	// errForeign: the file is none of ours, so it must not be replaced.
	errNotStateFile = errors.New("not a state file")
)

// A stateFile is where a table's counters are saved. A process that cannot use its file goes on
// without, since limits that begin anew are better than none.
type stateFile struct {
	path     string
	interval time.Duration
	table    *limiter.Table
	metrics  *telemetry.State
	logger   *zap.Logger
	unlock   func()
	// lastError is what the last save failed with.
	lastError string
}

// openTable returns the table for the counters, with those of the state file if there is one, and
// where to save them, nil for nowhere.
func (f *stateFlags) openTable(opt limiter.Options, metrics *telemetry.Metrics, logger *zap.Logger) (*limiter.Table, *stateFile, error) {
	opt.RestoreLeases = f.Leases
	table, err := limiter.New(opt)
	if err != nil || f.File == "" {
		return table, nil, err
	}
	ignoreFileSizeSignal()
	path := resolveLinks(f.File)
	s := &stateFile{path: path, interval: f.Interval, table: table, metrics: metrics.State(), logger: logger.With(zap.String("file", path))}
	if s.unlock, err = lockFile(path + ".lock"); err != nil {
		s.reportUnusable(fmt.Errorf("lock: %w", err), lockRemedy(err))
		return table, nil, nil
	}
	switch err := s.load(opt); {
	case err == nil:
		return s.table, s, nil
	case errors.Is(err, os.ErrNotExist):
		s.logger.Info("state: there is no file yet: counters begin anew")
		return table, s, nil
	case errors.Is(err, errNotStateFile):
		s.unlock()
		s.reportUnusable(err, "it is left as it is: name another file with --state-file, or remove this one")
		return table, nil, nil
	default:
		s.metrics.Errors.Inc()
		s.logger.Error("state: the file cannot be used: counters begin anew, and the next save replaces it", zap.Error(err), zap.String("remedy", loadRemedy(err)))
		return table, s, nil
	}
}

// resolveLinks returns where a path leads whose last element may be a symbolic link, also to a file that is yet to be
// made: a save must replace that file, and not the link.
func resolveLinks(path string) string {
	to := path
	for range 40 { // as many as Linux follows
		target, err := os.Readlink(to)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			dir, _ := filepath.Split(to)
			target = dir + target // not cleaned: ".." after a link leads elsewhere
		}
		to = target
	}
	if to == path {
		return path
	}
	dir, name := filepath.Split(to)
	if dir, err := filepath.EvalSymlinks(cmp.Or(dir, ".")); err == nil {
		return filepath.Join(dir, name)
	}
	return to
}

// reportUnusable tells that the process goes on without the file.
func (s *stateFile) reportUnusable(err error, remedy string) {
	s.metrics.Errors.Inc()
	s.logger.Error("state: the file cannot be used: counters begin anew, and this process saves none", zap.Error(err), zap.String("remedy", remedy))
}

func lockRemedy(err error) string {
	if errors.Is(err, errLocked) {
		return "give each process a --state-file of its own"
	}
	return "--state-file must be in a directory that this user can write to"
}

func loadRemedy(err error) string {
	switch {
	case errors.Is(err, limiter.ErrBytesMismatch):
		return "none is needed if --counter-memory was changed on purpose"
	case errors.Is(err, limiter.ErrFormat):
		return "none is needed after a change of sluice's version"
	default:
		return "look after the disk if this happens again"
	}
}

func (s *stateFile) load(opt limiter.Options) error {
	info, err := os.Stat(s.path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: it is no regular file", errNotStateFile)
	}
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	began := time.Now()
	table, saved, err := limiter.Load(f, opt)
	switch {
	case errors.Is(err, limiter.ErrNotSnapshot):
		return fmt.Errorf("%w: %w", errNotStateFile, err)
	case err != nil:
		return err
	}
	s.table = table
	s.metrics.Loaded.Set(1)
	s.metrics.Bytes.Set(float64(saved.Bytes))
	s.logger.Info("state: counters are those of the file", zap.Int64("counters", saved.Counters), zap.Int64("bytes", saved.Bytes),
		zap.Duration("age", time.Duration(now()-saved.At).Round(time.Millisecond)), zap.Duration("took", time.Since(began)))
	return nil
}

// start saves the counters each interval until end is called, which saves them once more.
// Nothing must use them any more then. A nil stateFile does nothing.
func (s *stateFile) start(ctx context.Context) (end func()) {
	if s == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(s.interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.save(s.logger.Debug)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		s.save(s.logger.Info)
		s.unlock()
	}
}

// save saves the counters. Of failures with one reason it logs the first.
func (s *stateFile) save(tell func(string, ...zap.Field)) {
	began := time.Now()
	var saved limiter.SnapshotInfo
	err := replaceFile(s.path, 0o600, func(w io.Writer) (err error) {
		saved, err = s.table.Save(w, now())
		return err
	})
	took := time.Since(began)
	if err != nil {
		s.metrics.Errors.Inc()
		if text := err.Error(); text != s.lastError {
			s.lastError = text
			telemetry.Raise(s.logger, telemetry.StateNotSaved, "", zap.Error(err))
		}
		return
	}
	s.metrics.Saved.Set(float64(began.UnixMilli()) / 1e3)
	s.metrics.Seconds.Set(took.Seconds())
	s.metrics.Bytes.Set(float64(saved.Bytes))
	about := []zap.Field{zap.Int64("counters", saved.Counters), zap.Int64("bytes", saved.Bytes), zap.Duration("took", took)}
	if s.lastError != "" {
		s.lastError, tell = "", s.logger.Info
		about = append(about, telemetry.Clear("", telemetry.StateNotSaved))
	}
	tell("state: counters are saved", about...)
}
