package server

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// panicLine is the log message of a panic.
const panicLine = "panic in a request; more within ten seconds are only counted"

// TestPanicsKeepTheirSecrets panics with parts of a request. Above level debug, only the type is
// logged, and the text of Go's runtime errors, which contain no values.
func TestPanicsKeepTheirSecrets(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	metrics := newMetrics(t)
	for _, test := range []struct {
		name   string
		panics func()
		want   string
	}{
		{"a text", func() { panic("bad value secret") }, "string"},
		{"an error", func() { panic(errors.New("bad value secret")) }, "*errors.errorString"},
		{"an error of Go", func() { _ = make([]int, 3)[len(t.Name())] }, "runtime.boundsError"},
	} {
		h := recoverPanics(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { test.panics() }), telemetry.NewPanics(metrics.Panics, zap.New(core)))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		if w.Code != http.StatusInternalServerError {
			t.Errorf("%s: the status is %d, want 500", test.name, w.Code)
		}
		all := logs.TakeAll()
		if len(all) != 2 || all[0].Level != zapcore.ErrorLevel || all[1].Level != zapcore.DebugLevel {
			t.Fatalf("%s: the log is %v, want a line for operators and one for debugging", test.name, all)
		}
		fields := all[0].ContextMap()
		if fields["type"] != test.want {
			t.Errorf("%s: the type is %v, want %s", test.name, fields["type"], test.want)
		}
		for key, value := range fields {
			if text, ok := value.(string); ok && strings.Contains(text, "secret") {
				t.Errorf("%s: the field %s is %q", test.name, key, text)
			}
		}
		if text, _ := fields["error"].(string); test.name == "an error of Go" && !strings.Contains(text, "index out of range") {
			t.Errorf("the error is %q, want the one about the index", text)
		}
	}
	if got := testutil.ToFloat64(metrics.Panics); got != 3 {
		t.Errorf("%v panics are counted, want 3", got)
	}
	defer func() {
		if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // the panic's own value
			t.Errorf("recovered %v, want ErrAbortHandler", p)
		}
	}()
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	recoverPanics(http.HandlerFunc(abort), telemetry.NewPanics(metrics.Panics, zap.New(core))).ServeHTTP(httptest.NewRecorder(), nil)
}

// TestPanicsAbortStartedResponse checks that a client gets an error for a partial response.
func TestPanicsAbortStartedResponse(t *testing.T) {
	half := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "y,12\n")
		panic("a bug")
	}
	srv := httptest.NewServer(recoverPanics(http.HandlerFunc(half), telemetry.NewPanics(newMetrics(t).Panics, zap.NewNop())))
	defer srv.Close()
	response, err := http.Get(srv.URL)
	if err != nil {
		return // the connection ended before the header
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("the client reads the partial response %q without an error", text)
	}
}
