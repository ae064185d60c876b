package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// TestResetOfReplicas verifies that a reset is previewed and done at each replica, that replicas without
// the counters are reported, and that only an error of a preview prevents the reset.
func TestResetOfReplicas(t *testing.T) {
	resets := 0
	serve := func(code int) string {
		debug := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			if code != http.StatusOK {
				_ = json.NewEncoder(w).Encode(map[string]string{"error": "no"})
				return
			}
			if r.Method == http.MethodPost {
				resets++
			}
			_ = json.NewEncoder(w).Encode(live.Reset{Selection: "all", Counters: 1, Used: 7, Done: r.Method == http.MethodPost})
		}))
		t.Cleanup(debug.Close)
		return strings.TrimPrefix(debug.URL, "http://")
	}
	a, b, none, broken := serve(http.StatusOK), serve(http.StatusOK), serve(http.StatusNotFound), serve(http.StatusForbidden)
	preview := a + ": all: 1 counter, 7 used\n" + b + ": all: 1 counter, 7 used\n"
	done := a + ": reset 1 counter, 7 were used\n" + b + ": reset 1 counter, 7 were used\n"
	report := "{\n  \"version\": 1,\n  \"replica\": \"" + a + "\",\n  \"selection\": \"all\",\n  \"counters\": 1,\n  \"used\": 7,\n  \"done\": true\n}\n"
	for _, tt := range []struct {
		flag, addr, in, out, err string
		resets                   int
	}{
		{"--output=text", a + "," + b + "," + none, "y\n", preview + none + ": no\nReset? [y/N] " + done + none + ": no\n", "", 2},
		{"--output=text", a + "," + b, "\n", preview + "Reset? [y/N] ", "sluice: nothing was reset\n", 0},
		{"--output=text", broken + "," + a, "y\n", a + ": all: 1 counter, 7 used\n", "sluice: nothing was reset: query " + broken + ": 403 Forbidden: no\n", 0},
		{"--output=text", none, "y\n", "", "sluice: nothing was reset: query " + none + ": 404 Not Found: no\n", 0},
		{"--output=text", none + "," + none, "y\n", none + ": no\n" + none + ": no\n", "sluice: nothing was reset: no replica has such counters\n", 0},
		{"--yes", broken + "," + a, "", a + ": reset 1 counter, 7 were used\n", "sluice: query " + broken + ": 403 Forbidden: no\n", 1},
		{"-yojson", none + "," + a, "", report, none + ": no\n", 1},
		{"--hash=01", a + "," + b, "y\n", "", "sluice: --hash with several replicas: each may have its own hash key, so a hash belongs to one replica: use --descriptor, or the address of that replica\n", 0},
	} {
		resets = 0
		var out, errs strings.Builder
		run(t.Context(), []string{"sluice", "reset", "-d", "shop", tt.flag, "--addr", tt.addr}, console{strings.NewReader(tt.in), &out, &errs})
		if out.String() != tt.out || errs.String() != tt.err || resets != tt.resets {
			t.Errorf("%s: %d resets, output\n%serrors\n%s", tt.addr, resets, out.String(), errs.String())
		}
	}
	resets = 0
	_, closed := io.Pipe()
	must.OK(t, closed.Close())
	if code := run(t.Context(), []string{"sluice", "reset", "-d", "shop", "--yes", "--addr", none + "," + a + "," + b}, console{nil, closed, io.Discard}); code != 1 || resets != 2 {
		t.Errorf("if the output is closed: exit code %d, %d resets, want 1 and 2", code, resets)
	}
}
