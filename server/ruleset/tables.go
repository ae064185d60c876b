package ruleset

import (
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// NewTableMetrics registers the metrics of tables, unless there are none, and returns them by the
// names of tables.
func NewTableMetrics(m *telemetry.Metrics, all *tables.Registry) map[string]*telemetry.Table {
	names := all.Names()
	if len(names) == 0 {
		return nil
	}
	return m.Tables(names, func(name string) int {
		e, _ := all.Table(name) // the name exists
		return e.Rows().Len()
	})
}

// OpenJournals opens the tables of dir, which are those without a file. After an error the caller
// closes the others, too.
func (l *Loader) OpenJournals(dir string) error {
	for _, name := range l.tables.Names() {
		e, _ := l.tables.Table(name) // the name exists
		if e.Path != "" {
			continue
		}
		field := zap.String("table", name)
		journal, truncated, err := tables.OpenJournal(e.Table, dir, func(err error) { l.reportJournal(name, err) })
		if err != nil {
			return TableError(name, err)
		}
		if e.Journal = journal; truncated > 0 {
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

// reportJournal logs that the journal of a table cannot be written, or for a nil error that it can
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
