package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestPanicCostsOneReply breaks the service's inside: the call is answered, the
// process lives, and the panic is counted and logged without the request.
func TestPanicCostsOneReply(t *testing.T) {
	s := service(t, Settings{}, oneRule)
	decider := s.decider
	s.decider = nil
	core, logs := observer.New(zap.ErrorLevel)
	h := NewHandler(s, zap.New(core), nil, false)
	x := &Exchange{Request: marshal(t, simpleRequest())}
	if err := h.Answer(t.Context(), x); status.Code(err) != codes.Internal {
		t.Errorf("error is %v, want INTERNAL", err)
	}
	if got := testutil.ToFloat64(s.metrics.Panics); got != 1 || logs.Len() != 1 {
		t.Errorf("%v panics counted and %d logged, want 1 and 1", got, logs.Len())
	}
	s.decider = decider
	if err := h.Answer(t.Context(), x); err != nil || len(x.Reply()) == 0 {
		t.Errorf("the next request: %v, %x, want a reply", err, x.Reply())
	}
}

// panicLine is what is logged of a panic.
const panicLine = "panic in a request; more within ten seconds are only counted"

// TestPanicsUnderLoad has many calls at once while the rules are at times ones that
// make a request panic: before it is matched, before it is charged, and after. Those
// calls get INTERNAL, which is counted and logged, all others get their answers, and
// what is admitted stays within the limit.
func TestPanicsUnderLoad(t *testing.T) {
	overBoth(t, func(t *testing.T, transport string) {
		t.Helper()
		const limit, callers, calls = 1000, 8, 300
		s := service(t, Settings{}, fmt.Sprintf("{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: %d}}]}", limit))
		r := serve(t, s, Options{Transport: transport})
		good := s.rules.Load()
		faulty := []*serving{
			{partitions: good.partitions, counters: good.counters, labels: good.labels}, // no set to match with
			{set: good.set, counters: good.counters, labels: good.labels},               // no partitions to charge in
			{set: good.set, partitions: good.partitions, labels: good.labels},           // no counters for what was charged
		}
		begun := time.Now()
		var calling sync.WaitGroup
		var admitted, denied, internal atomic.Int64
		for range callers {
			client := rls.NewRateLimitServiceClient(r.dial(t))
			calling.Go(func() {
				for i := range calls {
					switch i % 20 {
					case 0:
						s.rules.Store(faulty[i/20%len(faulty)])
					case 1:
						s.rules.Store(good)
					}
					reply, err := client.ShouldRateLimit(t.Context(), simpleRequest())
					switch {
					case status.Code(err) == codes.Internal:
						internal.Add(1)
					case err != nil:
						t.Errorf("a call gets %v", err)
					case reply.GetOverallCode() == rls.RateLimitResponse_OK:
						admitted.Add(1)
					default:
						denied.Add(1)
					}
				}
			})
		}
		calling.Wait()
		t.Logf("%d admitted, %d denied, %d INTERNAL", admitted.Load(), denied.Load(), internal.Load())
		// A request that panicked after it was charged took a place.
		if got := admitted.Load(); got > limit || got+internal.Load() < limit {
			t.Errorf("%d calls were admitted, want %d less those that panicked", got, limit)
		}
		if got := int64(testutil.ToFloat64(s.metrics.Panics)); got != internal.Load() || got == 0 {
			t.Errorf("%d panics are counted, want as many as INTERNAL, and some", got)
		}
		if got := r.logs.FilterMessage(panicLine).Len(); got < 1 || got > 1+int(time.Since(begun)/(10*time.Second)) {
			t.Errorf("%d panics of %d are logged in %v, want one in ten seconds", got, internal.Load(), time.Since(begun))
		}
	})
}

// TestPanicsAreLoggedNowAndThen has panics without end: all are counted, and a line in ten seconds says how
// many had none.
func TestPanicsAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.ErrorLevel)
		metrics := service(t, Settings{}, "").metrics
		panics := telemetry.NewPanics(metrics.Panics, zap.New(core))
		for range 250 { // 25 seconds
			panics.Caught("a bug")
			time.Sleep(100 * time.Millisecond)
		}
		var leftOut []any
		for _, line := range logs.FilterMessage(panicLine).All() {
			leftOut = append(leftOut, line.ContextMap()["left_out"])
		}
		if want := []any{nil, int64(99), int64(99)}; !slices.Equal(leftOut, want) {
			t.Errorf("the lines say that %v were left out, want %v", leftOut, want)
		}
		if got := testutil.ToFloat64(metrics.Panics); got != 250 {
			t.Errorf("%v panics are counted, want 250", got)
		}
	})
}

// TestPanicsKeepTheirSecrets throws parts of a request: above debug, only the type is logged,
// and the text of Go's own errors, which hold none.
func TestPanicsKeepTheirSecrets(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	metrics := service(t, Settings{}, "").metrics
	for _, test := range []struct {
		name  string
		throw func()
		want  string
	}{
		{"a text", func() { panic("bad value secret") }, "string"},
		{"an error", func() { panic(errors.New("bad value secret")) }, "*errors.errorString"},
		{"an error of Go", func() { _ = make([]int, 3)[len(t.Name())] }, "runtime.boundsError"},
	} {
		h := recovering(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { test.throw() }), telemetry.NewPanics(metrics.Panics, zap.New(core)))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		if w.Code != http.StatusInternalServerError {
			t.Errorf("%s: the answer is %d, want 500", test.name, w.Code)
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
			t.Errorf("the error is %q, want that of the index", text)
		}
	}
	if got := testutil.ToFloat64(metrics.Panics); got != 3 {
		t.Errorf("%v panics are counted, want 3", got)
	}
	defer func() {
		if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // as it was thrown
			t.Errorf("recovered %v, want the wish to abort", p)
		}
	}()
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	recovering(http.HandlerFunc(abort), telemetry.NewPanics(metrics.Panics, zap.New(core))).ServeHTTP(httptest.NewRecorder(), nil)
}
