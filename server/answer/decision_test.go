package answer

import (
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestNoDescriberCostsNothing checks that without tracing and debug logging no function is called
// and nothing is allocated.
func TestNoDescriberCostsNothing(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	logger := zap.New(core)
	s := service(t, Settings{}, oneRule)
	h := NewHandler(s, logger, nil, false)
	h.describe = newDescriber(nil, logger)
	if h.describe != nil {
		t.Error("newDescribe() is not nil without tracing and at the level info")
	}
	x, ctx := &Exchange{Request: marshal(t, simpleRequest())}, t.Context()
	if n := must.AllocsPerRun(100, func() {
		if err := h.Answer(ctx, x, nil); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a request allocates %v times, want 0", n)
	}
	if logs.Len() != 0 {
		t.Errorf("requests are logged at the level info: %v", logs.All())
	}
}

// TestDecisionsAreLogged checks that decisions are logged at level debug only, with names of rules
// only, and sampled under load.
func TestDecisionsAreLogged(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	logger := zap.New(core)
	h := NewHandler(service(t, Settings{}, tracedRules), logger, nil, false)
	h.describe = newDescriber(nil, logger)
	request := func(r *rls.RateLimitRequest) {
		// The error is checked in the log.
		_ = h.Answer(t.Context(), &Exchange{Request: marshal(t, r)}, nil)
	}
	request(tracedRequest())
	request(tracedRequest())
	unknown := tracedRequest()
	unknown.Domain = "secret"
	request(unknown)
	request(&rls.RateLimitRequest{Domain: "secret"})

	rules := []any{"user.path_/api/* 1/hour", "plan_free", "override"}
	want := []map[string]any{
		{"domain": "edge", "code": "OK", "rules": rules, "limited": []any{}},
		{"domain": "edge", "code": "OVER_LIMIT", "rules": rules, "limited": rules[:1]},
		{"domain": "unknown", "code": "OK", "rules": []any{}, "limited": []any{}},
		{"error": errNoDescriptors.Error()},
	}
	var got []map[string]any
	for _, e := range logs.TakeAll() {
		fields := e.ContextMap()
		if fields["condition"] == string(telemetry.RequestsWithoutDescriptors) {
			continue // a warning about the client, without values of the request
		}
		if e.Level != zapcore.DebugLevel {
			t.Errorf("%s is logged at %v, want debug", e.Message, e.Level)
		}
		delete(fields, "delay")
		got = append(got, fields)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}

	for range 10_000 {
		request(simpleRequest())
	}
	if n := logs.Len(); n < 100 || n > 5000 {
		t.Errorf("%d of 10000 decisions are logged, want a sample", n)
	}
}
