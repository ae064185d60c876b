package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-ratelimit/sluice/server/admin"
)

// Tables lists all tables.
func (c *Debug) Tables(ctx context.Context) (*admin.TablesReport, error) {
	var report admin.TablesReport
	return &report, c.request(ctx, http.MethodGet, admin.TablesPath, nil, &report)
}

// Rows writes all rows of a table as CSV.
func (c *Debug) Rows(ctx context.Context, table string, to io.Writer) error {
	return c.request(ctx, http.MethodGet, rowPath(table, nil), nil, to)
}

// Row returns a row if method is GET, and deletes it if method is DELETE.
func (c *Debug) Row(ctx context.Context, method, table string, key []string) (*admin.RowReport, error) {
	var report admin.RowReport
	return &report, c.request(ctx, method, rowPath(table, key), nil, &report)
}

// PutRow puts a row with the given fields. columns sets the columns of a table without rows, and is
// empty otherwise.
func (c *Debug) PutRow(
	ctx context.Context, table string, key []string, columns string, row url.Values,
) (*admin.RowReport, error) {
	var report admin.RowReport
	query := url.Values{}
	if columns != "" {
		query.Set("columns", columns)
	}
	return &report, c.do(ctx, http.MethodPut, rowPath(table, key), query, strings.NewReader(row.Encode()), &report)
}

// PostRows puts the rows of a CSV file.
func (c *Debug) PostRows(ctx context.Context, table string, file []byte) error {
	return c.do(ctx, http.MethodPost, rowPath(table, nil), nil, bytes.NewReader(file), new(admin.RowsReport))
}

// rowPath returns the path of a table, or of a row.
func rowPath(table string, key []string) string {
	parts := []string{admin.TablesPath}
	for _, part := range append([]string{table}, key...) {
		parts = append(parts, strings.ReplaceAll(url.PathEscape(part), ".", "%2E")) // . and .. would be removed from the path
	}
	return strings.Join(parts, "/")
}
