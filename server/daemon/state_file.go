package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/internal/file"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// StateOptions configures the state file. The tags are those of the flags of sluice serve.
type StateOptions struct {
	File     string        `name:"state-file" placeholder:"PATH" help:"File to save counters to, so that they survive a restart. Its directory needs space for two copies, and no other process may write to it. Default: none."`
	Interval time.Duration `name:"state-interval" hidden:"" default:"30s" placeholder:"TIME" help:"Interval at which counters are saved to --state-file, besides the save at exit. A crash loses at most the hits of one interval."`
}

// errNotStateFile is the error for a file that sluice has not written and must not replace.
var errNotStateFile = errors.New("not a state file")

// stateFile saves the counters of a table. A process that cannot use its file starts with empty
// counters, because these are better than no limits.
type stateFile struct {
	path     string
	interval time.Duration
	table    *limiter.Table
	metrics  *telemetry.State
	logger   *zap.Logger
	unlock   func()
	// lastError is the error of the last save, empty if it succeeded.
	lastError string
}

// openTable returns the table of counters, restored from the state file if there is one. The
// stateFile is nil if counters are not saved.
func (o *StateOptions) openTable(
	opt limiter.Options, metrics *telemetry.Metrics, logger *zap.Logger,
) (*limiter.Table, *stateFile, error) {
	table, err := limiter.New(opt)
	if err != nil || o.File == "" {
		return table, nil, err
	}
	file.IgnoreSizeSignal()
	path := o.File
	target, linkErr := filepath.EvalSymlinks(path)
	if linkErr == nil {
		path = target // a save replaces the file that a link leads to
	}
	s := &stateFile{
		path: path, interval: o.Interval, table: table, metrics: metrics.State(), logger: logger.With(zap.String("file", path)),
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		s.reportUnusable(fmt.Errorf("symbolic link: %w", linkErr), "set --state-file to the path that the link leads to")
		return table, nil, nil
	}
	if s.unlock, err = file.Lock(path + ".lock"); err != nil {
		s.reportUnusable(fmt.Errorf("lock: %w", err), lockRemedy(err))
		return table, nil, nil
	}
	switch err := s.load(opt); {
	case err == nil:
		return s.table, s, nil
	case errors.Is(err, os.ErrNotExist):
		s.logger.Info("state: file does not exist yet; starting with empty counters")
		return table, s, nil
	case errors.Is(err, errNotStateFile):
		s.unlock()
		s.reportUnusable(err, "set --state-file to another path, or remove this file")
		return table, nil, nil
	default:
		s.metrics.Errors.Inc()
		s.logger.Error("state: failed to load the file; starting with empty counters, and the next save replaces it",
			zap.Error(err), zap.String("remedy", loadRemedy(err)))
		return table, s, nil
	}
}

// reportUnusable logs that the process does not use the file.
func (s *stateFile) reportUnusable(err error, remedy string) {
	s.metrics.Errors.Inc()
	s.logger.Error("state: cannot use the file; starting with empty counters, which are not saved", zap.Error(err),
		zap.String("remedy", remedy))
}

func lockRemedy(err error) string {
	if errors.Is(err, file.ErrLocked) {
		return "set a different --state-file for each process"
	}
	return "set --state-file to a path in a directory that this user can write to"
}

func loadRemedy(err error) string {
	switch {
	case errors.Is(err, limiter.ErrBytesMismatch):
		return "none if --counter-memory was changed on purpose"
	case errors.Is(err, limiter.ErrFormat):
		return "none after a change of sluice's version"
	default:
		return "check the disk if this happens again"
	}
}

func (s *stateFile) load(opt limiter.Options) error {
	info, err := os.Stat(s.path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: it is not a regular file", errNotStateFile)
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
	s.logger.Info("state: counters loaded", zap.Int64("counters", saved.Counters), zap.Int64("bytes", saved.Bytes),
		zap.Duration("age", time.Duration(now()-saved.At).Round(time.Millisecond)),
		zap.Duration("took", time.Since(began)))
	return nil
}

// start saves the counters at each interval until stop is called, which saves them a last time.
// Call stop after the last change of the counters, and then release. A nil stateFile does nothing.
func (s *stateFile) start(ctx context.Context) (stop func()) {
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
	}
}

// release lets another process use the file. A nil stateFile does nothing.
func (s *stateFile) release() {
	if s != nil {
		s.unlock()
	}
}

// save saves the counters. It logs success with log, and the first of consecutive equal errors.
func (s *stateFile) save(log func(string, ...zap.Field)) {
	began := time.Now()
	var saved limiter.SnapshotInfo
	err := file.Replace(s.path, 0o600, func(w io.Writer) (err error) {
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
	about := []zap.Field{
		zap.Int64("counters", saved.Counters), zap.Int64("bytes", saved.Bytes), zap.Duration("took", took),
	}
	if s.lastError != "" {
		s.lastError = ""
		log = s.logger.Info
		about = append(about, telemetry.Clear("", telemetry.StateNotSaved))
	}
	log("state: counters saved", about...)
}
