package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"

	"github.com/rogpeppe/go-internal/testscript"
)

func listenOTLP(ts *testscript.TestScript, _ bool, _ []string) {
	spans := make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		spans <- string(body)
	}))
	ts.Defer(s.Close)
	ts.Setenv("collector", s.URL)
	all, _ := ts.Value(servers{}).(*servers)
	all.spans = spans
}

// waitForSpans waits for spans that match. With not, it expects no spans and does not wait, since a
// process sends its last spans before it exits.
func waitForSpans(ts *testscript.TestScript, not bool, args []string) {
	all, _ := ts.Value(servers{}).(*servers)
	if not {
		if n := len(all.spans); n > 0 {
			ts.Fatalf("received %d messages of spans, want none", n)
		}
		return
	}
	for spans := range all.spans {
		if regexp.MustCompile(args[0]).MatchString(spans) {
			return
		}
	}
}
