package server

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// collector receives spans over OTLP.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer

	mu       sync.Mutex
	received []*tracepb.ResourceSpans
}

// newCollector starts a collector for a protocol and configures the exporters of t to use it.
func newCollector(t *testing.T, protocol string) *collector {
	t.Helper()
	c := &collector{}
	switch protocol {
	case "http":
		mux := http.NewServeMux()
		mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var request collectorpb.ExportTraceServiceRequest
			if err != nil || proto.Unmarshal(body, &request) != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			_, _ = c.Export(r.Context(), &request)
			w.Header().Set("Content-Type", "application/x-protobuf")
		})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	case "grpc":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		collectorpb.RegisterTraceServiceServer(s, c)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	}
	return c
}

// Export records spans.
func (c *collector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, r.GetResourceSpans()...)
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// spans returns the recorded spans, sorted by start time.
func (c *collector) spans() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*tracepb.Span
	for _, r := range c.received {
		for _, s := range r.GetScopeSpans() {
			all = append(all, s.GetSpans()...)
		}
	}
	// Spans are sent when they end, which may be after the client has started the next call.
	slices.SortFunc(all, func(a, b *tracepb.Span) int {
		return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano())
	})
	return all
}

// resource returns the attributes of the process that sent the spans.
func (c *collector) resource() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.received) == 0 {
		return nil
	}
	return attributes(c.received[0].GetResource().GetAttributes())
}

// attributes converts attributes of the types text, number and list of texts.
func attributes(all []*commonpb.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range all {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			m[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_DoubleValue:
			m[a.GetKey()] = v.DoubleValue
		case *commonpb.AnyValue_ArrayValue:
			list := []string{}
			for _, e := range v.ArrayValue.GetValues() {
				list = append(list, e.GetStringValue())
			}
			m[a.GetKey()] = slices.Clip(list)
		}
	}
	return m
}
