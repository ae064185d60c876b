//go:build more

package proxy_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// recorder is a rate limit service without bounds. It answers OK to all calls and records them.
type recorder struct {
	rls.UnimplementedRateLimitServiceServer

	addr  string
	calls chan recordedCall
}

type recordedCall struct {
	headers metadata.MD
	request *rls.RateLimitRequest
}

func startRecorder(t *testing.T) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	r := &recorder{addr: l.Addr().String(), calls: make(chan recordedCall, 1)}
	s := grpc.NewServer(grpc.MaxHeaderListSize(1<<20), grpc.MaxRecvMsgSize(64<<20))
	rls.RegisterRateLimitServiceServer(s, r)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		// A skipped test may stop the server before it serves.
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return r
}

func (r *recorder) ShouldRateLimit(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	headers, _ := metadata.FromIncomingContext(ctx)
	r.calls <- recordedCall{headers, request}
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
}

// largest returns the sizes of the largest header (name and value), of all headers as defined in
// RFC 9113, and of the message.
func (r recordedCall) largest() (field, headers, message int) {
	for name, values := range r.headers {
		for _, value := range values {
			field = max(field, len(value))
			headers += len(name) + len(value) + 32
		}
	}
	for _, d := range r.request.GetDescriptors() {
		for _, e := range d.GetEntries() {
			field = max(field, len(e.GetValue()))
		}
	}
	return field, headers, proto.Size(r.request)
}

// TestInputsReachTheService checks that each input makes the call as large as it claims, so that
// TestClientInputCannotBypassLimits does test sluice. It fails if a newer Envoy forwards more of a
// client's request.
func TestInputsReachTheService(t *testing.T) {
	t.Parallel()
	r := startRecorder(t)
	p := startProxyTo(t, inputListeners(), "", []string{r.addr})
	// Headers that Envoy always sends.
	always := []string{":authority", "content-type", "x-envoy-expected-rq-timeout-ms", "x-envoy-internal", "x-forwarded-for"}
	more := map[string][]string{
		"header of the call":                  {"x-shard"},
		"binary header of the call in base64": {"x-shard-bin"}, // decoded by the recorder
		"tracestate by OpenTelemetry":         {"traceparent", "tracestate"},
		"tracestate and origin by Datadog":    {"traceparent", "tracestate", "x-datadog-origin", "x-datadog-parent-id", "x-datadog-sampling-priority", "x-datadog-tags", "x-datadog-trace-id"},
		"path by SkyWalking, in base64":       {"sw8"},
		"trace id by SkyWalking":              {"sw8"},
		"ids by Zipkin, baggage":              {"b3", "traceparent"},
	}
	t.Logf("%-34s %9s %9s %9s", "bytes of", "one field", "headers", "message")
	for _, w := range inputs {
		status, err := p.send(t.Context(), w.name, w.request("a", w.maxBytes))
		if status != http.StatusOK || err != nil || len(r.calls) != 1 {
			t.Errorf("%s: %d bytes: status %d, %v with %d calls, want 200 with one call", w.name, w.maxBytes, status, err, len(r.calls))
			continue
		}
		call := <-r.calls
		field, headers, message := call.largest()
		t.Logf("%-34s %9d %9d %9d", w.name, field, headers, message)
		if field < w.minCarried {
			t.Errorf("%s: the largest field of the call has %d bytes, want at least %d", w.name, field, w.minCarried)
		}
		got := slices.Sorted(maps.Keys(call.headers))
		want := slices.Sorted(slices.Values(append(more[w.name], always...)))
		if !slices.Equal(got, want) {
			t.Errorf("%s: Envoy sends the headers %q, want %q", w.name, got, want)
		}
	}
}
