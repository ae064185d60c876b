package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/web"
)

// TablesPath is the path of all tables. The path of a row is this path, the name of the table and
// the values of the key columns, separated by slashes.
const TablesPath = "/api/v1/tables"

// maxRowsBody bounds the body of a POST of rows.
const maxRowsBody = 4 << 20

// TableReport summarizes a table.
type TableReport struct {
	Name string `json:"name"`
	// Columns contains the key columns. It is empty for a table that has had no row yet.
	Columns []string `json:"columns"`
	Rows    int      `json:"rows"`
	// Source is the path of its file, empty for a table that is changed through this API.
	Source string `json:"source,omitempty"`
}

// TablesReport lists all tables.
type TablesReport struct {
	Tables []TableReport `json:"tables"`
}

// RowReport describes a row and, after a change, the previous row.
type RowReport struct {
	Table string            `json:"table"`
	Key   map[string]string `json:"key"`
	// Row is nil if the row was deleted. Was is nil if there was no previous row.
	Row *tables.Row `json:"row,omitempty"`
	Was *tables.Row `json:"was,omitempty"`
}

// RowsReport is the result of a POST of rows.
type RowsReport struct {
	Table string `json:"table"`
	Rows  int    `json:"rows"`
	// Warnings names rows that may be incomplete.
	Warnings []string `json:"warnings,omitempty"`
}

// tablesHandler serves paths below [TablesPath].
type tablesHandler struct {
	*API
	// posting is full during a POST of rows: the rows of 4 MiB take 50 MB, so one request is read at
	// a time.
	posting chan struct{}
}

// The rights that methods require for all tables, for a table and for a row.
var (
	tablesMethods = map[string]access.Right{http.MethodGet: access.Read}
	tableMethods  = map[string]access.Right{http.MethodGet: access.Read, http.MethodPost: access.Write}
	rowMethods    = map[string]access.Right{http.MethodGet: access.Read, http.MethodPut: access.Write, http.MethodDelete: access.Write}
)

func (h *tablesHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := endpoint{methods: tablesMethods}
	name, key, err := tablePath(r.URL.EscapedPath())
	switch {
	case len(key) > 0:
		e.methods = rowMethods
	case name != "":
		e.methods = tableMethods
	}
	by, denied := h.guard.authorize(w.Header(), r, &e)
	if denied != nil {
		writeJSON(w, r, nil, denied)
		return
	}
	if err == nil && name != "" && len(key) == 0 && r.Method != http.MethodPost {
		if err = h.writeRows(w, name); err == nil {
			return
		}
	}
	if err == nil && name != "" && len(key) == 0 {
		cpu.FromContext(r.Context()).Wait(func() { err = h.awaitTurn(w, r) })
		if err == nil {
			defer func() { <-h.posting }()
		}
	}
	var report any
	if err == nil {
		report, err = h.answer(r, by, name, key)
	}
	writeJSON(w, r, report, err)
}

// awaitTurn waits until no other POST of rows is read. The caller must take an element from posting
// unless there is an error.
func (h *tablesHandler) awaitTurn(w http.ResponseWriter, r *http.Request) error {
	select {
	case h.posting <- struct{}{}:
		return nil
	default:
	}
	select {
	case h.posting <- struct{}{}:
		if err := web.SetTimeouts(w); err != nil { // the wait may have exceeded those of the request
			<-h.posting
			return err
		}
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// tablePath parses the part of a path after [TablesPath].
func tablePath(escaped string) (name string, key []string, err error) {
	rest := strings.TrimPrefix(strings.TrimPrefix(escaped, TablesPath), "/")
	if rest == "" {
		return "", nil, nil
	}
	for part := range strings.SplitSeq(rest, "/") {
		value, err := url.PathUnescape(part)
		if err != nil {
			return "", nil, err
		}
		key = append(key, value)
	}
	if key[0] == "" {
		return "", key[1:], fmt.Errorf("the path contains no table name: must be %s/NAME/KEY", TablesPath)
	}
	return key[0], key[1:], nil
}

func (h *tablesHandler) answer(r *http.Request, by, name string, key []string) (any, error) {
	columns, dryRun, err := changeParameters(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return h.listTables(), nil
	}
	e, err := h.findTable(name)
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return h.getRow(e, key)
	}
	if e.Path != "" {
		return nil, newRequestError(http.StatusConflict, "table %s is read from the file %s: change the file instead",
			name, e.Path)
	}
	if e.Journal == nil {
		return nil, newRequestError(http.StatusServiceUnavailable, "table %s is not open", name)
	}
	if r.Method == http.MethodPost {
		return h.postRows(e, r, columns, by, dryRun)
	}
	if columns, err = h.resolveColumns(e, columns, len(key)); err != nil {
		return nil, err
	}
	change := tables.Change{Values: key, Delete: r.Method == http.MethodDelete}
	if !change.Delete {
		body, err := io.ReadAll(io.LimitReader(r.Body, web.MaxBody+1))
		if err != nil {
			return nil, err
		}
		if len(body) > web.MaxBody {
			return nil, newRequestError(http.StatusRequestEntityTooLarge, "the row is longer than %d KiB",
				web.MaxBody>>10)
		}
		if change.Row, err = tables.ParseRow(string(body)); err != nil {
			return nil, err
		}
	}
	return h.changeRow(r, e, by, columns, change, dryRun)
}

// changeParameters parses the query, which may contain the columns for the first row of a table, and
// dry_run.
func changeParameters(query string) (columns []string, dryRun bool, err error) {
	values, err := readQuery(query, "columns", "dry_run")
	if err != nil || !values.Has("columns") {
		return nil, values.Has("dry_run"), err
	}
	columns = strings.Split(values.Get("columns"), ",")
	return columns, values.Has("dry_run"), tables.CheckColumns(columns)
}

func (h *tablesHandler) findTable(name string) (*tables.Entry, error) {
	e, err := h.service.Settings().Tables.Table(name)
	if err != nil {
		return nil, newRequestError(http.StatusNotFound, "%v", err)
	}
	return e, nil
}

// listTables describes all tables.
func (h *tablesHandler) listTables() *TablesReport {
	report := &TablesReport{Tables: []TableReport{}}
	for _, name := range h.service.Settings().Tables.Names() {
		e, _ := h.service.Settings().Tables.Table(name) // cannot fail
		t := TableReport{Name: name, Columns: []string{}, Rows: e.Rows().Len(), Source: e.Path}
		if c := e.Rows().Columns(); c != nil {
			t.Columns = *c
		}
		report.Tables = append(report.Tables, t)
	}
	return report
}

// writeRows writes all rows of a table as CSV.
func (h *tablesHandler) writeRows(w http.ResponseWriter, name string) error {
	e, err := h.findTable(name)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := e.Rows().WriteCSV(&web.PacedWriter{ResponseWriter: w}); err != nil {
		h.logger.Debug("write "+TablesPath, zap.Error(err)) // an error means that the client has disconnected
	}
	return nil
}

// getRow looks up a row.
func (h *tablesHandler) getRow(e *tables.Entry, key []string) (*RowReport, error) {
	rows := e.Rows()
	row, ok := rows.Get(key)
	switch columns := rows.Columns(); {
	case columns == nil:
		return nil, newRequestError(http.StatusNotFound, "table %s has no row yet", e.Name())
	case len(key) != len(*columns):
		return nil, wrongKeyError(e.Name(), *columns, len(key))
	case !ok:
		return nil, newRequestError(http.StatusNotFound, "table %s has no row %s: the rule's own number applies",
			e.Name(), keyText(key))
	default:
		return &RowReport{Table: e.Name(), Key: keyMap(*columns, key), Row: &row}, nil
	}
}

func wrongKeyError(name string, columns []string, values int) error {
	return fmt.Errorf("table %s has the columns %s, but the path has %d values: write one value per column, separated by slashes, with %%2F for a slash in a value",
		name, strings.Join(columns, ", "), values)
}

func keyMap(columns, values []string) map[string]string {
	key := map[string]string{}
	for i, c := range columns {
		key[c] = values[i]
	}
	return key
}

func keyText(values []string) string { return fmt.Sprintf("%.100q", strings.Join(values, "/")) }

// resolveColumns returns the columns of a table that is about to be changed: its current columns,
// or the requested ones, or the last entry of the rule that refers to the table.
func (h *tablesHandler) resolveColumns(e *tables.Entry, requested []string, values int) ([]string, error) {
	columns := requested
	if current := e.Rows().Columns(); current != nil && e.Rows().Len() > 0 {
		if columns = *current; requested != nil && !slices.Equal(requested, columns) {
			return nil, newRequestError(http.StatusConflict, "table %s has the columns %s, not %s", e.Name(),
				strings.Join(columns, ", "), strings.Join(requested, ", "))
		}
	}
	set := h.service.Rules()
	if columns == nil && set != nil {
		for _, use := range set.TableUses(e.Name()) {
			last := []string{use.Column()}
			if columns != nil && !slices.Equal(columns, last) {
				return nil, fmt.Errorf("table %s has no row, and rules with different keys refer to it: add ?columns=KEY, such as ?columns=%s", e.Name(), columns[0])
			}
			columns = last
		}
	}
	if columns == nil {
		return nil, newRequestError(http.StatusConflict, "table %s has no row, and no rule refers to it: add ?columns=KEY, the key of the entry that selects rows", e.Name())
	}
	if values != len(columns) {
		return nil, wrongKeyError(e.Name(), columns, values)
	}
	return columns, h.checkFit(e, columns, nil)
}

// checkFit returns an error if a table with the given columns and changes does not fit the active
// rules.
func (h *tablesHandler) checkFit(e *tables.Entry, columns []string, changes []tables.Change) error {
	burst := ""
	for _, c := range changes {
		if c.Row.Burst > 0 {
			burst = keyText(c.Values)
			break
		}
	}
	if set := h.service.Rules(); set != nil {
		return set.CheckTable(e.Name(), columns, burst)
	}
	return nil
}

// changeRow puts or deletes a row. A dry run does not fail if there is no row to delete.
func (h *tablesHandler) changeRow(
	r *http.Request, e *tables.Entry, by string, columns []string, c tables.Change, dryRun bool,
) (*RowReport, error) {
	report := &RowReport{Table: e.Name(), Key: keyMap(columns, c.Values)}
	changes := []tables.Change{c}
	if _, exists := e.Rows().Get(c.Values); exists || !c.Delete {
		if err := h.applyChanges(r, e, columns, changes, dryRun); err != nil {
			return nil, err
		}
	}
	if c = changes[0]; c.Had {
		report.Was = &c.Was
	} else if c.Delete && !dryRun {
		return nil, newRequestError(http.StatusNotFound, "table %s has no row %s", e.Name(), keyText(c.Values))
	}
	if dryRun {
		return report, nil
	}
	fields := []zap.Field{zap.String("by", by), zap.String("table", e.Name()), zap.Strings("key", c.Values)}
	if report.Was != nil {
		fields = append(fields, zap.String("was", report.Was.String()))
	}
	metrics := h.service.Settings().TableMetrics[e.Name()]
	if c.Delete {
		metrics.Deleted.Inc()
		h.logger.Info("row deleted", fields...)
		return report, nil
	}
	report.Row = &c.Row
	metrics.Put.Inc()
	h.logger.Info("row put", append(fields, zap.String("row", c.Row.String()))...)
	return report, nil
}

// postRows puts the rows of a CSV file.
func (h *tablesHandler) postRows(
	e *tables.Entry, r *http.Request, requested []string, by string, dryRun bool,
) (*RowsReport, error) {
	rows, diagnostics := e.Read("rows", &boundedReader{in: r.Body, left: maxRowsBody})
	if err := diagnostics.Err(); err != nil {
		return nil, err
	}
	columns := *rows.Columns()
	if requested != nil && !slices.Equal(requested, columns) {
		return nil, fmt.Errorf("the rows have the columns %s, not %s", strings.Join(columns, ", "),
			strings.Join(requested, ", "))
	}
	if _, err := h.resolveColumns(e, columns, len(columns)); err != nil {
		return nil, err
	}
	changes := make([]tables.Change, 0, rows.Len())
	for values, row := range rows.All() {
		changes = append(changes, tables.Change{Values: values, Row: row})
	}
	report := &RowsReport{Table: e.Name(), Rows: len(changes)}
	if err := h.applyChanges(r, e, columns, changes, dryRun); err != nil || dryRun {
		return report, err
	}
	h.service.Settings().TableMetrics[e.Name()].Put.Add(float64(len(changes)))
	for _, d := range diagnostics {
		report.Warnings = append(report.Warnings, d.String())
		h.logger.Warn("tables: "+d.String(), zap.String("by", by), zap.String("table", e.Name()))
	}
	h.logger.Info("rows put", zap.String("by", by), zap.String("table", e.Name()), zap.Int("rows", len(changes)))
	return report, nil
}

// boundedReader fails after maxRowsBody bytes.
type boundedReader struct {
	in   io.Reader
	left int
}

func (c *boundedReader) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if c.left -= n; c.left < 0 {
		return n, fmt.Errorf("the rows are longer than %d MiB: send them in several requests", maxRowsBody>>20)
	}
	return n, err
}

// applyChanges stores and activates changes, or only checks them.
func (h *tablesHandler) applyChanges(
	r *http.Request, e *tables.Entry, columns []string, changes []tables.Change, dryRun bool,
) (err error) {
	cpu.FromContext(r.Context()).Wait(func() { // for the disk
		var release func()
		release, err = h.service.Settings().Tables.Claim(e, columns,
			func() error { return h.checkFit(e, columns, changes) })
		if err == nil {
			defer release()
			err = e.Journal.Apply(columns, changes, dryRun)
		}
	})
	switch {
	case err == nil && dryRun:
		return nil
	case err == nil:
		h.service.TablesChanged()
		return nil
	case errors.Is(err, tables.ErrColumns): // another request has set the columns
		return newRequestError(http.StatusConflict, "table %s: %v", e.Name(), err)
	case errors.Is(err, tables.ErrClosed):
		return newRequestError(http.StatusServiceUnavailable, "table %s: %v", e.Name(), err)
	case errors.Is(err, tables.ErrFull), errors.Is(err, tables.ErrNotSaved):
		return newRequestError(http.StatusInsufficientStorage, "table %s: %v", e.Name(), err)
	default:
		return fmt.Errorf("table %s: %w", e.Name(), err)
	}
}
