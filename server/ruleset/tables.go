package ruleset

import (
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// NewTableMetrics registers the metrics of all tables and returns them by the names of the tables,
// or nil if there are no tables.
func NewTableMetrics(m *telemetry.Metrics, all *tables.Registry) map[string]*telemetry.Table {
	names := all.Names()
	if len(names) == 0 {
		return nil
	}
	return m.Tables(names, func(name string) int {
		e, _ := all.Table(name) // cannot fail
		return e.Rows().Len()
	})
}

// OpenJournals opens the journals in dir of all tables without a file. The caller must call
// CloseJournals, even after an error.
func (l *Loader) OpenJournals(dir string) error {
	for _, name := range l.tables.Names() {
		e, _ := l.tables.Table(name) // cannot fail
		if e.Path != "" {
			continue
		}
		field := zap.String("table", name)
		journal, truncated, err := tables.OpenJournal(e.Table, dir, func(err error) { l.reportJournal(name, err) })
		if err != nil {
			return TableError(name, err)
		}
		e.Journal = journal
		if truncated > 0 {
			l.logger.Warn("tables: truncated an incomplete record at the end of the journal; the change was never acknowledged", field, zap.Int64("bytes", truncated))
		}
		l.logger.Info("table opened", field, zap.Int("rows", e.Rows().Len()))
	}
	return nil
}

// CloseJournals closes the journals that are open.
func (l *Loader) CloseJournals() {
	if err := l.tables.Close(); err != nil {
		l.logger.Error("tables: failed to close a journal", zap.Error(err))
	}
}

// reportJournal logs that the journal of a table cannot be written or, if err is nil, that it can
// be written again.
func (l *Loader) reportJournal(name string, err error) {
	field := zap.String("table", name)
	unsaved := l.opt.TableMetrics[name].Unsaved
	if err != nil {
		unsaved.Set(1)
		telemetry.Raise(l.logger, telemetry.TableNotSaved, name, field, zap.Error(err))
		return
	}
	unsaved.Set(0)
	l.logger.Info("table saved again", field, telemetry.Clear(name, telemetry.TableNotSaved))
}
