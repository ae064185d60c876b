package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/server/live"
)

// TestResetOfReplicas verifies that a reset is previewed and done at each replica, except at one
// without the counters, and that an error of a preview prevents the reset.
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
	for _, tt := range []struct {
		addr, in, out, err string
		resets             int
	}{
		{a + "," + none + "," + b, "y\n", preview + "Reset? [y/N] " + done, "", 2},
		{a + "," + b, "\n", preview + "Reset? [y/N] ", "sluice: nothing was reset\n", 0},
		{broken + "," + a, "y\n", a + ": all: 1 counter, 7 used\n", "sluice: nothing was reset: query " + broken + ": 403 Forbidden: no\n", 0},
		{none, "y\n", "", "sluice: nothing was reset: query " + none + ": 404 Not Found: no\n", 0},
	} {
		resets = 0
		var out, errs strings.Builder
		run(t.Context(), []string{"sluice", "reset", "-d", "shop", "--addr", tt.addr}, console{strings.NewReader(tt.in), &out, &errs})
		if out.String() != tt.out || errs.String() != tt.err || resets != tt.resets {
			t.Errorf("%s: %d resets, output\n%serrors\n%s", tt.addr, resets, out.String(), errs.String())
		}
	}
}
