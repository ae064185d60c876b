package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/server/client"
)

// tableCmd groups the commands that show and change the tables of a running service.
type tableCmd struct {
	List   tableListCmd   `cmd:"" help:"List the tables, or the rows of one as CSV."`
	Get    tableGetCmd    `cmd:"" help:"Print a row."`
	Set    tableSetCmd    `cmd:"" help:"Set a row. Takes effect immediately."`
	Delete tableDeleteCmd `cmd:"" help:"Delete a row. The limit of the rule applies again."`
	Import tableImportCmd `cmd:"" help:"Import rows from a file. Other rows are kept."`
}

// tableClientFlags are the flags of a client of the debug listener.
type tableClientFlags struct {
	Addr             string `type:"address" default:"127.0.0.1:6070" placeholder:"ADDR" help:"Debug listener of a running service."`
	debugClientFlags `embed:""`
}

// withClient calls do with a client of the debug listener.
func (t *tableClientFlags) withClient(do func(*client.Debug) error) error {
	client, err := t.debugClient(t.Addr)
	if err != nil {
		return err
	}
	client.Timeout = 0 // tables may be large
	if err := do(client); err != nil {
		return fmt.Errorf("query %s: %w", t.Addr, err)
	}
	return nil
}

// change calls do for each replica, which returns a description of the change. Of several replicas,
// all check the change first, and none is changed if one of them fails.
func (f *replicasFlags) change(ctx context.Context, c console, do func(*client.Debug) (string, error)) error {
	replicas, err := f.service().Clients(ctx)
	if len(replicas) > 1 {
		for _, r := range replicas {
			r.DryRun = true
			if _, failed := do(r); failed != nil {
				err = errors.Join(err, fmt.Errorf("query %s: %w", r.Addr, failed))
			}
		}
	}
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	var changed, others []string
	for _, r := range replicas {
		r.DryRun = false
		text, failed := do(r)
		if failed != nil {
			others = append(others, r.Addr)
			err = errors.Join(err, fmt.Errorf("query %s: %w", r.Addr, failed))
			continue
		}
		changed = append(changed, r.Addr)
		if len(replicas) > 1 {
			text = r.Addr + ": " + text
		}
		fmt.Fprintln(c.out, text)
	}
	if err == nil || len(replicas) == 1 {
		return err
	}
	return fmt.Errorf("%w\nchanged: %s\nnot changed, or unknown: %s", err,
		cmp.Or(strings.Join(changed, ", "), "none"), strings.Join(others, ", "))
}

// rowArguments are the arguments that name a row.
type rowArguments struct {
	Name string   `arg:"" help:"Name of the table."`
	Key  []string `arg:"" sep:"none" help:"Values of the key columns."`
}

// describe returns the text of a row, which may be nil.
func describe(row *tables.Row) string {
	if row == nil {
		return "none"
	}
	return row.String()
}

type tableListCmd struct {
	tableClientFlags `embed:""`
	outputFlag       `embed:""`

	Name string `arg:"" optional:"" help:"Name of the table."`
}

func (t *tableListCmd) Run(ctx context.Context, c console) error {
	if t.Name != "" {
		return t.writeRows(ctx, c)
	}
	return t.withClient(func(debug *client.Debug) error {
		report, err := debug.Tables(ctx)
		if err != nil {
			return err
		}
		return t.print(c, report, func() error {
			if len(report.Tables) == 0 {
				fmt.Fprintln(c.out, "the service has no tables; serve --table defines them")
			}
			for _, table := range report.Tables {
				fmt.Fprintf(c.out, "%s: %s, key %s, from %s\n", table.Name, rules.Count(table.Rows, "row"),
					cmp.Or(strings.Join(table.Columns, ","), "not yet known"), cmp.Or(table.Source, "--tables-dir"))
			}
			return nil
		})
	})
}

// rowsReport is the output of table list NAME --output json. A row has a field for each of its cells that is not
// empty, as PUT accepts them.
type rowsReport struct {
	Table string           `json:"table"`
	Rows  []map[string]any `json:"rows"`
}

func (t *tableListCmd) rowsReport(records [][]string) rowsReport {
	report := rowsReport{t.Name, []map[string]any{}}
	for i := 1; i < len(records); i++ {
		row := map[string]any{}
		for j, cell := range records[i] {
			column := records[0][j]
			switch isField := slices.Contains(tables.RowFields, column); {
			case isField && cell == "":
			case isField && column != "name" && json.Valid([]byte(cell)): // a number or true
				row[column] = json.RawMessage(cell)
			default:
				row[column] = cell
			}
		}
		report.Rows = append(report.Rows, row)
	}
	return report
}

// writeRows prints the rows of a table, as CSV by default, sorted by their keys.
func (t *tableListCmd) writeRows(ctx context.Context, c console) error {
	var text bytes.Buffer
	err := t.withClient(func(debug *client.Debug) error { return debug.Rows(ctx, t.Name, &text) })
	if err != nil {
		return err
	}
	records, err := csv.NewReader(&text).ReadAll()
	if err != nil {
		return err
	}
	slices.SortFunc(records[min(1, len(records)):], slices.Compare)
	return t.print(c, t.rowsReport(records), func() error { return writeRecords(c, records) })
}

// writeRecords writes records as CSV, without control characters if it is for a terminal.
func writeRecords(c console, records [][]string) error {
	if c.terminal() == nil {
		return csv.NewWriter(c.out).WriteAll(records)
	}
	for _, record := range records {
		for i := range record { // keys may be chosen by clients
			record[i] = format.Printable(record[i])
		}
	}
	return csv.NewWriter(c.out).WriteAll(records)
}

type tableGetCmd struct {
	tableClientFlags `embed:""`
	rowArguments     `embed:""`
}

func (t *tableGetCmd) Run(ctx context.Context, c console) error {
	return t.withClient(func(debug *client.Debug) error {
		report, err := debug.Row(ctx, http.MethodGet, t.Name, t.Key)
		if err == nil {
			fmt.Fprintln(c.out, report.Row)
		}
		return err
	})
}

type tableSetCmd struct {
	replicasFlags `embed:""`
	rowArguments  `embed:""`

	Columns   string  `placeholder:"A,B" help:"Key columns of a new table. Default: the last entry of the rule that names the table."`
	Limit     *uint32 `name:"requests-per-unit" short:"r" placeholder:"N" help:"Requests per window. 0 denies all."`
	Unit      string  `placeholder:"UNIT" help:"Window: second, minute, hour, day, week, month or year. A row with another window than the rule has its own counter. Default: the window of the rule."`
	Burst     uint32  `placeholder:"N" help:"Burst of a token bucket. Default: the burst of the rule, scaled to --requests-per-unit."`
	Unlimited bool    `help:"Do not limit this key."`
	As        string  `placeholder:"NAME" help:"Name of the metrics series of the row. Rows can share one."`
}

func (t *tableSetCmd) Run(ctx context.Context, c console) error {
	if t.Limit == nil && !t.Unlimited {
		return errors.New("nothing to set: use --requests-per-unit N or --unlimited")
	}
	row := url.Values{"unit": {t.Unit}, "name": {t.As}}
	if t.Limit != nil {
		row.Set("requests_per_unit", strconv.FormatUint(uint64(*t.Limit), 10))
	}
	if t.Burst > 0 {
		row.Set("burst", strconv.FormatUint(uint64(t.Burst), 10))
	}
	if t.Unlimited {
		row.Set("unlimited", "true")
	}
	return t.change(ctx, c, func(debug *client.Debug) (string, error) {
		report, err := debug.PutRow(ctx, t.Name, t.Key, t.Columns, row)
		return fmt.Sprintf("%s %s: %s, was %s", t.Name, strings.Join(t.Key, "/"), describe(report.Row),
			describe(report.Was)), err
	})
}

type tableDeleteCmd struct {
	replicasFlags `embed:""`
	rowArguments  `embed:""`
}

// Run deletes a row. In a dry run a missing row is not an error: it finds out whether any replica has
// the row. If so, the others are skipped.
func (t *tableDeleteCmd) Run(ctx context.Context, c console) error {
	found := false
	return t.change(ctx, c, func(debug *client.Debug) (string, error) {
		report, err := debug.Row(ctx, http.MethodDelete, t.Name, t.Key)
		if debug.DryRun {
			found = found || report.Was != nil
		} else if found && errors.Is(err, client.ErrNotFound) {
			err = nil
		}
		return fmt.Sprintf("%s %s: none, was %s", t.Name, strings.Join(t.Key, "/"), describe(report.Was)), err
	})
}

type tableImportCmd struct {
	replicasFlags `embed:""`

	Name string `arg:"" help:"Name of the table."`
	File string `arg:"" help:"CSV file with a header. - is standard input."`
}

// importBytes is the maximum size of the CSV in one request. It is below the limit of the debug
// listener.
const importBytes = 1 << 20

// Run imports the rows of a file. It reads the complete file first, so that a file with an error
// changes nothing.
func (t *tableImportCmd) Run(ctx context.Context, c console) error {
	in := c.in
	if t.File != "-" {
		f, err := os.Open(t.File)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // opened for reading
		in = f
	}
	rows, found := tables.New(t.Name).Read(t.File, in)
	if err := found.Err(); err != nil {
		return fmt.Errorf("no rows imported:\n%w", err)
	}
	for _, d := range found { // such as a missing newline at the end, a sign of truncation
		fmt.Fprintln(c.err, d)
	}
	return t.change(ctx, c, func(debug *client.Debug) (string, error) {
		imported := 0
		for part, n := range rows.Parts(importBytes) {
			switch err := debug.PostRows(ctx, t.Name, part); {
			case err != nil && debug.DryRun:
				return "", err
			case err != nil:
				return "", fmt.Errorf("%w; %s had been imported before", err, rules.Count(imported, "row"))
			}
			imported += n
		}
		return fmt.Sprintf("%s: %s imported", t.Name, rules.Count(imported, "row")), nil
	})
}
