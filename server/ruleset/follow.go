package ruleset

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors/source"
)

// Follow loads the rule files, which may be nil, and the files of tables. Then it starts a
// goroutine in group that reloads them when they change, until ctx is done.
func (l *Loader) Follow(ctx context.Context, group *errgroup.Group, files *source.Files) error {
	tableFiles := l.tableFiles()
	if files == nil && len(tableFiles) == 0 {
		return nil
	}
	exit := l.opt.ExitOnBadStart
	var startErr error
	all := source.NewGroup(files, tableFiles, func(c source.Change) error {
		if !exit {
			return l.Load(c)
		}
		if startErr = l.startError(c); startErr == nil {
			startErr = l.rulesStartError(l.Load(c))
		}
		return startErr
	})
	all.OnWait(l.reportWait)
	_ = all.Load(ctx)
	if startErr != nil { // Load returns startErr, or an error that l.Load has logged
		return startErr
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the process is shutting down
	}
	exit = false
	group.Go(func() error {
		all.Run(ctx)
		return nil
	})
	return nil
}

func (l *Loader) tableFiles() (files []*source.TableFile) {
	for _, name := range l.tables.Names() {
		if e, _ := l.tables.Table(name); e.Path != "" { // Table cannot fail
			files = append(files, source.NewTableFile(source.TableOptions{
				Table: e.Table, Path: e.Path, AllowEmpty: l.opt.AllowEmptyTables,
			}))
		}
	}
	return files
}

// startError returns the error to exit with if rules or tables failed to load at the start, or nil.
func (l *Loader) startError(c source.Change) error {
	for _, u := range c.Tables {
		if u.Err != nil {
			return fmt.Errorf("%w\n(--on-bad-start=serve starts without its rows until they load)",
				TableError(u.Table.Name(), u.Err))
		}
	}
	if c.Rules == nil {
		return nil
	}
	return l.rulesStartError(c.Rules.Err)
}

// rulesStartError returns the error to exit with if rules failed to load at the start with err, nil
// if err is nil.
func (l *Loader) rulesStartError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w\n(--on-bad-start=serve starts without rules until they load)",
		RulesError(err, l.opt.DefaultsFile))
}

// reportWait logs that the process waits for files that are being written before it listens.
func (l *Loader) reportWait(w source.Wait) {
	fields := []zap.Field{zap.Duration("waited", w.Waited.Round(time.Millisecond)), zap.Duration("at_most", w.Limit)}
	if len(w.Tables) > 0 {
		fields = append(fields, zap.Strings("tables", w.Tables), zap.Int64s("bytes", w.Bytes))
	}
	l.logger.Info("waiting for files before listening: "+waitReason(w), fields...)
}

func waitReason(w source.Wait) string {
	switch {
	case len(w.Tables) == 0:
		return "rule files keep changing"
	case w.Rules:
		return "rule files keep changing, and table files keep changing or do not end with a newline"
	default:
		return "table files keep changing or do not end with a newline"
	}
}
