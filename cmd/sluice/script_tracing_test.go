package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"time"

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

// traced does not wait if nothing is to have come: a process sends what it has
// before it ends.
func traced(ts *testscript.TestScript, not bool, args []string) {
	all, _ := ts.Value(servers{}).(*servers)
	if not {
		if n := len(all.spans); n > 0 {
			ts.Fatalf("%d packets of spans came", n)
		}
		return
	}
	var others []string
	for {
		select {
		case spans := <-all.spans:
			others = append(others, spans)
			if regexp.MustCompile(args[0]).MatchString(spans) {
				return
			}
		case <-time.After(patience):
			ts.Fatalf("no spans came that match %s; the others:\n%q", args[0], others)
		}
	}
}
