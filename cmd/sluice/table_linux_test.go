package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTableListOnATerminal verifies that control characters in keys are replaced on a terminal, but
// not in a pipe.
func TestTableListOnATerminal(t *testing.T) {
	const rows = "customer,requests_per_unit\n\"e\x1b[2Jvil\nx\",5\n"
	debug := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, rows) }))
	t.Cleanup(debug.Close)
	args := []string{"sluice", "table", "list", "customers", "--addr", strings.TrimPrefix(debug.URL, "http://")}

	master, terminal := openTerminals(t)
	if code := run(t.Context(), args, console{terminal, terminal, terminal}); code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	if shown := readUntil(t, master, ",5"); !strings.Contains(shown, "e?[2Jvil?x,5") {
		t.Errorf("the terminal shows %q", shown)
	}
	var piped bytes.Buffer
	if code := run(t.Context(), args, console{nil, &piped, io.Discard}); code != 0 || piped.String() != rows {
		t.Errorf("a pipe gets %q, want %q; exit code %d", piped.String(), rows, code)
	}
}
