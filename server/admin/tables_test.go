package admin_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/web"
)

// tablesServer serves a [tablesAPI].
func tablesServer(t *testing.T, rules string) (c *client.Debug, addr string, all *tables.Registry, logs *observer.ObservedLogs) {
	t.Helper()
	a, all, logs := tablesAPI(t, rules)
	addr = listen(t, a)
	return &client.Debug{Addr: addr}, addr, all, logs
}

// tablesAPI has two tables, one of a file and one that is changed row by row.
func tablesAPI(t *testing.T, rules string) (a *admin.API, all *tables.Registry, logs *observer.ObservedLogs) {
	t.Helper()
	all = new(tables.Registry)
	journaled, err := all.Add("users", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.Add("file", "rows.csv"); err != nil {
		t.Fatal(err)
	}
	if journaled.Journal, _, err = tables.OpenJournal(journaled.Table, t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = all.Close() })
	metrics := servertest.Metrics(t).Tables(all.Names(), func(string) int { return 0 })
	s := servertest.Service(t, answer.Settings{Tables: all, TableMetrics: metrics}, rules)
	core, logs := observer.New(zapcore.InfoLevel)
	return newAPI(t, s, zap.New(core)), all, logs
}

const tableRules = "{domain: d, descriptors: [{key: path, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]}]}"

// TestIncompleteBodiesChangeNothing checks that a body that ends before its announced length,
// within a number, does not change the table. Nor do rows whose columns differ from those in the
// query.
func TestIncompleteBodiesChangeNothing(t *testing.T) {
	_, addr, all, _ := tablesServer(t, tableRules)
	for _, request := range []string{
		"POST /api/v1/tables/users HTTP/1.1\r\nHost: localhost\r\nContent-Length: 33\r\n\r\nuser,requests_per_unit\na,12\nb,1",
		"POST /api/v1/tables/users HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\nuser,requests_per_unit\na,12\nb,1\r\n",
		"PUT /api/v1/tables/users/c?columns=user HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\nrequests_per_unit=1",
		"POST /api/v1/tables/users?columns=path HTTP/1.1\r\nHost: localhost\r\nContent-Length: 28\r\n\r\nuser,requests_per_unit\na,12\n",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = reply.Body.Close()
		_ = conn.Close()
		e, _ := all.Table("users")
		if n := e.Rows().Len(); reply.StatusCode != http.StatusBadRequest || n != 0 {
			t.Errorf("%.60q is answered with %d, and the table has %d rows", request, reply.StatusCode, n)
		}
	}
}

// slowBody ends when it is closed by the test.
type slowBody struct {
	read atomic.Bool
	end  chan struct{}
}

func (b *slowBody) Read([]byte) (int, error) {
	b.read.Store(true)
	<-b.end
	return 0, io.EOF
}

// TestRowsArePostedOneRequestAtATime checks that a request is not read while another one is: large
// ones take a lot of memory.
func TestRowsArePostedOneRequestAtATime(t *testing.T) {
	a, _, _ := tablesAPI(t, tableRules)
	synctest.Test(t, func(t *testing.T) {
		h := a.Handler(nil)
		bodies := []*slowBody{{end: make(chan struct{})}, {end: make(chan struct{})}}
		for i, body := range bodies {
			local := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			r := httptest.NewRequestWithContext(local, http.MethodPost, "http://localhost/api/v1/tables/users", body)
			r.RemoteAddr = "127.0.0.1:1"
			go h.ServeHTTP(httptest.NewRecorder(), r)
			synctest.Wait()
			if read := body.read.Load(); read != (i == 0) {
				t.Errorf("request %d is read: %t", i, read)
			}
		}
		close(bodies[0].end)
		synctest.Wait()
		if !bodies[1].read.Load() {
			t.Error("the second request is not read after the first one")
		}
		close(bodies[1].end)
	})
}

// TestRowsOverHTTP puts, shows and deletes rows with unusual keys through the client.
func TestRowsOverHTTP(t *testing.T) {
	c, _, all, logs := tablesServer(t, tableRules)
	ctx := t.Context()
	for _, key := range []string{"a", "a/b", "..", ".", "a%2Fb", "ä ö", "a?b#c", "\xff", "x\ny", "&=+"} {
		report, err := c.PutRow(ctx, "users", []string{key}, "user", url.Values{"requests_per_unit": {"7"}, "name": {"gold"}})
		if err != nil {
			t.Errorf("%q: %v", key, err)
			continue
		}
		if report.Was != nil || report.Row.RequestsPerUnit != 7 || report.Row.Name != "gold" {
			t.Errorf("%q: %+v", key, report)
		}
		e, _ := all.Table("users")
		if row, ok := e.Rows().Get([]string{key}); !ok || row.RequestsPerUnit != 7 {
			t.Errorf("%q is not active: %v, %t", key, row, ok)
		}
		if got, err := c.Row(ctx, http.MethodGet, "users", []string{key}); err != nil || *got.Row != *report.Row {
			t.Errorf("%q: %+v, %v", key, got, err)
		}
		if got, err := c.Row(ctx, http.MethodDelete, "users", []string{key}); err != nil || *got.Was != *report.Row {
			t.Errorf("%q: %+v, %v", key, got, err)
		}
		if _, err := c.Row(ctx, http.MethodGet, "users", []string{key}); err == nil {
			t.Errorf("%q still exists", key)
		}
	}
	if n := logs.FilterMessage("row put").FilterField(zap.String("row", `7, name: "gold"`)).Len(); n != 10 {
		t.Errorf("%d log lines report rows, want 10", n)
	}
	// Empty values, which give consecutive slashes in the path.
	for _, key := range [][]string{{"", "a"}, {"a", ""}, {"", ""}} {
		if report, err := c.PutRow(ctx, "users", key, "path,user", url.Values{"requests_per_unit": {"7"}}); err != nil || report.Key["path"] != key[0] || report.Key["user"] != key[1] {
			t.Errorf("%q: %+v, %v", key, report, err)
		}
		if _, err := c.Row(ctx, http.MethodDelete, "users", key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	var many bytes.Buffer
	many.WriteString("user,requests_per_unit\n")
	for i := range 1000 {
		fmt.Fprintf(&many, "u%d,%d\n", i, i)
	}
	if err := c.PostRows(ctx, "users", many.Bytes()); err != nil {
		t.Error(err)
	}
	var listed bytes.Buffer
	if err := c.Rows(ctx, "users", &listed); err != nil || bytes.Count(listed.Bytes(), []byte("\n")) != 1001 {
		t.Errorf("%d lines, %v", bytes.Count(listed.Bytes(), []byte("\n")), err)
	}
	report, err := c.Tables(ctx)
	if err != nil || len(report.Tables) != 2 || report.Tables[0].Source != "rows.csv" || report.Tables[1].Rows != 1000 || report.Tables[1].Columns[0] != "user" {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestRejectedRows sends invalid requests. Nothing changes.
func TestRejectedRows(t *testing.T) {
	_, addr, all, _ := tablesServer(t, tableRules)
	request := func(method, path, body string) string {
		t.Helper()
		code, _, text := servertest.Fetch(t, method, "http://"+addr+admin.TablesPath+path, body)
		return fmt.Sprint(code, " ", http.StatusText(code), " ", text)
	}
	if got := request("PUT", "/users/al?columns=user", `{"requests_per_unit":5}`); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	for _, tt := range []struct{ method, path, body, want string }{
		{"POST", "", "", "405 Method Not Allowed"},
		{"PUT", "/users", "", "405 Method Not Allowed"},
		{"PATCH", "/users/al", "", "405 Method Not Allowed"},
		{"GET", "/none", "", `404 Not Found {
  "error": "unknown table \"none\" (known: file, users)"`},
		{"GET", "/users/bo", "", "404 Not Found"},
		{"GET", "/file/bo", "", "404 Not Found"},
		{"DELETE", "/users/bo", "", "404 Not Found"},
		{"PUT", "/file/bo", "requests_per_unit=5", "409 Conflict"},
		{"POST", "/file", "a,requests_per_unit\n", "409 Conflict"},
		{"PUT", "/users/al?columns=path", "requests_per_unit=5", "409 Conflict"},
		{"PUT", "/users/al?column=user", "requests_per_unit=5", "400 Bad Request"},
		{"PUT", "/users/al/b", "requests_per_unit=5", "400 Bad Request"},
		{"PUT", "//al", "requests_per_unit=5", "the path contains no table name"},
		{"PUT", "/users/al", "", "requests_per_unit is missing"},
		{"PUT", "/users/al", "requests=5", `unknown field \"requests\"`},
		{"PUT", "/users/al", "requests_per_unit=5&requests_per_unit=6", `duplicate field \"requests_per_unit\"`},
		{"PUT", "/users/al", `{"requests_per_unit":5,"requests_per_unit":6}`, `duplicate field \"requests_per_unit\"`},
		{"PUT", "/users/al", `{"requests_per_unit":`, "is neither a JSON object"},
		{"PUT", "/users/al", `{"requests_per_unit":5}{`, "is neither a JSON object"},
		{"PUT", "/users/al", "--x\r\nContent-Disposition: form-data; name=\"requests_per_unit\"\r\n\r\n5\r\n--x--", "is neither a JSON object"},
		{"PUT", "/users/al", "requests_per_unit=5&unlimited=true", "unlimited excludes requests_per_unit"},
		{"PUT", "/users/al", `{"requests_per_unit":5}` + strings.Repeat(" ", web.MaxBody) + "and more", "413 Request Entity Too Large"},
		{"PUT", "/users/a%0D%0Ab", "requests_per_unit=5", "contains a carriage return"},
		{"PUT", "/users/al?columns=name", "requests_per_unit=5", `column \"name\" cannot be a key`},
		{"PUT", "/users/" + strings.Repeat("a", 1025), "requests_per_unit=5", "is longer than 1024 bytes"},
		{"PUT", "/users/a%00", "requests_per_unit=5", "contains a NUL byte"},
		{"POST", "/users", "user,requests_per_unit\nbo,5\nco,many\n", "rows:3:4: error: requests_per_unit is"},
		{"POST", "/users", "path,requests_per_unit\n/,5\n", "409 Conflict"},
		{"POST", "/users", "", "the file is empty"},
		{"POST", "/users", "user,requests_per_unit\n" + strings.Repeat("b,5\n", 1<<20) + "\n", "the rows are longer than 4 MiB"},
	} {
		if got := request(tt.method, tt.path, tt.body); !strings.Contains(got, tt.want) {
			t.Errorf("%s %.60s: %.300s, want %s", tt.method, tt.path, got, tt.want)
		}
	}
	e, _ := all.Table("users")
	if row, ok := e.Rows().Get([]string{"al"}); e.Rows().Len() != 1 || !ok || row.RequestsPerUnit != 5 {
		t.Errorf("%d rows, %v", e.Rows().Len(), row)
	}
}

// TestRowsNeedRights checks that web pages of other origins and other machines cannot change rows.
func TestRowsNeedRights(t *testing.T) {
	_, addr, all, _ := tablesServer(t, tableRules)
	for name, header := range map[string][2]string{
		"another origin": {"Origin", "https://evil.example"},
		"a proxy":        {"X-Forwarded-For", "192.0.2.1"},
		"another name":   {"Host", "evil.example"},
	} {
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPost} {
			path := "/users/al?columns=user"
			if method == http.MethodPost {
				path = "/users"
			}
			code, _, _ := servertest.Fetch(t, method, "http://"+addr+admin.TablesPath+path, "requests_per_unit=5", header[:]...)
			if code != http.StatusForbidden {
				t.Errorf("%s, %s: status %d, want 403", name, method, code)
			}
		}
	}
	if e, _ := all.Table("users"); e.Rows().Len() != 0 {
		t.Errorf("%d rows", e.Rows().Len())
	}
}

// TestTheFirstRowWhileRulesChange puts the first row of a table, which decides its columns, while
// rules that need other columns are activated. One of the two must be rejected.
func TestTheFirstRowWhileRulesChange(t *testing.T) {
	all := new(tables.Registry)
	e, err := all.Add("users", "")
	if err != nil {
		t.Fatal(err)
	}
	if e.Journal, _, err = tables.OpenJournal(e.Table, t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = all.Close() })
	s := servertest.Service(t, answer.Settings{Tables: all, TableMetrics: servertest.Metrics(t).Tables(all.Names(), func(string) int { return 0 })}, "")
	c := &client.Debug{Addr: listen(t, newAPI(t, s, zap.NewNop()))}
	compile := func(key string) *descriptors.Set {
		t.Helper()
		configs, found := rulefile.Parse("rules.yaml", fmt.Appendf(nil, "{domain: d, descriptors: [{key: %s, rate_limit: {unit: hour, requests_per_unit: 1, table: users}}]}", key))
		set, more := descriptors.Compile(configs, descriptors.Options{Tables: all, TablesLater: true})
		if found = append(found, more...); len(found) > 0 {
			t.Fatal(found)
		}
		return set
	}
	activate := func(set *descriptors.Set) {
		all.Lock()
		defer all.Unlock()
		if set.CheckTables(func(string) (*tables.Columns, string) { return e.ColumnsLocked(), "" }) != nil {
			return
		}
		if err := s.Activate(0, set, nil); err != nil {
			t.Error(err)
		}
	}
	keys := [2]string{"user", "ip"}
	for i := range 100 {
		e.Delete([]string{"al"})
		activate(compile(keys[i%2]))
		next := compile(keys[1-i%2])
		var running sync.WaitGroup
		running.Go(func() {
			_, _ = c.PutRow(t.Context(), "users", []string{"al"}, keys[i%2], url.Values{"requests_per_unit": {"7"}})
		})
		running.Go(func() { activate(next) })
		running.Wait()
		if columns := e.ColumnsLocked(); columns != nil {
			if err := s.Rules().CheckTable("users", *columns, ""); err != nil {
				t.Fatalf("round %d: a row was put that does not fit the active rules: %v", i, err)
			}
		}
	}
	e.Delete([]string{"al"})
	activate(compile("user"))
	if _, err := c.PutRow(t.Context(), "users", []string{"al"}, "user", url.Values{"requests_per_unit": {"7"}, "burst": {"9"}}); err == nil || !strings.Contains(err.Error(), `the row of "al" has a burst, but no rule of the table has`) {
		t.Errorf("a burst for a fixed window: %v", err)
	}
}

// TestWriteTimeoutOfLongTables checks that the write timeout applies to each part of a table.
func TestWriteTimeoutOfLongTables(t *testing.T) {
	_, _, all, _ := tablesServer(t, tableRules)
	e, err := all.Table("users")
	if err != nil {
		t.Fatal(err)
	}
	changes := make([]tables.Change, 20_000)
	for i := range changes {
		changes[i] = tables.Change{Values: []string{fmt.Sprintf("%0100d", i)}, Row: tables.Row{RequestsPerUnit: 1}}
	}
	if err := e.Journal.Apply([]string{"user"}, changes, false); err != nil {
		t.Fatal(err)
	}
	h := newAPI(t, servertest.Service(t, answer.Settings{Tables: all}, tableRules), zap.NewNop()).Handler(nil)
	w := servertest.RequestAt(servertest.Loopback, h, http.MethodGet, admin.TablesPath+"/users", "localhost", "")
	if want := (w.Body.Len() + web.PacedBytes - 1) / web.PacedBytes; w.Code != http.StatusOK || w.Body.Len() < 2<<20 || len(w.Set) != want {
		t.Errorf("%d: %d bytes have %d deadlines, want %d", w.Code, w.Body.Len(), len(w.Set), want)
	}
}
