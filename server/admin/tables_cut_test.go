package admin_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestTruncatedBodies closes connections within the body of a request. Nothing changes, even if the
// received part is valid by itself.
func TestTruncatedBodies(t *testing.T) {
	_, addr, all, _ := tablesServer(t, tableRules)
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	for _, target := range []struct{ method, path, body string }{
		{http.MethodPost, "/users", "user,requests_per_unit\nal,12\nbo,1\n"},
		{http.MethodPost, "/users", "user,requests_per_unit\nal,12\n"},
		{http.MethodPut, "/users/al?columns=user", "requests_per_unit=12"},
		{http.MethodPut, "/users/al?columns=user", `{"requests_per_unit":12}`},
	} {
		for name, body := range map[string]string{
			"without the last chunk": "Transfer-Encoding: chunked\r\n\r\n" + chunk(target.body),
			"within a chunk":         "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s", len(target.body)+2, target.body),
			"before its length":      fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(target.body)+1, target.body),
		} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(conn, "%s %s%s HTTP/1.1\r\nHost: %s\r\n%s", target.method, admin.TablesPath, target.path, addr, body); err != nil {
				t.Fatal(err)
			}
			tcp, _ := conn.(*net.TCPConn)
			if err := tcp.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || response.StatusCode != http.StatusBadRequest {
				t.Errorf("%s %s, cut %s: %v, %v, want 400", target.method, target.body, name, response, err)
			}
			conn.Close()
		}
	}
	if e, _ := all.Table("users"); e.Rows().Len() != 0 {
		t.Errorf("%d rows", e.Rows().Len())
	}
}

// TestRowsOfTruncatedFile sends a complete body with a truncated file. The response and the log
// name the row.
func TestRowsOfTruncatedFile(t *testing.T) {
	_, addr, _, logs := tablesServer(t, tableRules)
	for text, want := range map[string]string{
		"user,requests_per_unit\nal,12\nbo,1":   `rows:3:1: warning: the file does not end with a newline: the row of user=\"bo\" may be truncated`,
		"user,requests_per_unit\nal,12\nbo,1\n": "",
	} {
		code, _, got := servertest.Fetch(t, http.MethodPost, "http://"+addr+admin.TablesPath+"/users", text, "Content-Type", "text/csv")
		if code != http.StatusOK || !strings.Contains(got, want) || strings.Contains(got, "warning") != (want != "") {
			t.Errorf("%q: %d, %s, want %q", text, code, got, want)
		}
	}
	if n := logs.FilterMessageSnippet("does not end with a newline").Len(); n != 1 {
		t.Errorf("%d warnings in the log, want one", n)
	}
}
