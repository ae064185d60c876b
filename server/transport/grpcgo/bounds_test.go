package grpcgo

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// TestHeadersAreForgotten holds that a call keeps no header but those that tracing
// reads, and none of these that is very long.
func TestHeadersAreForgotten(t *testing.T) {
	long := strings.Repeat("x", 17<<10)
	for _, tt := range []struct {
		name       string
		kept       []string
		have, want metadata.MD
	}{
		{"without tracing", nil, metadata.Pairs(":authority", "sluice", "user-agent", "u", "traceparent", "t"), metadata.MD{}},
		{
			"with tracing",
			[]string{"traceparent", "tracestate", "baggage"},
			metadata.Pairs("user-agent", "u", "traceparent", "t", "tracestate", long, "baggage", "b"),
			metadata.Pairs("traceparent", "t", "baggage", "b"),
		},
		{
			"many values",
			[]string{"tracestate"},
			metadata.MD{"tracestate": strings.Split(strings.Repeat("x,", 1000), ",")},
			metadata.MD{},
		},
	} {
		b := &headerBound{Limits: transport.Limits{MaxHeaderBytes: 1 << 20}, TraceHeaders: tt.kept}
		if _, err := b.inspect(t.Context(), &tap.Info{Header: tt.have}); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, tt.have); diff != "" {
			t.Errorf("%s: headers kept: -want +got:\n%s", tt.name, diff)
		}
	}
}

// TestInspectAllocatesNothing at the headers that an Envoy sends.
func TestInspectAllocatesNothing(t *testing.T) {
	b := &headerBound{Limits: transport.Limits{MaxHeaderBytes: 128 << 10}, TraceHeaders: []string{"traceparent", "tracestate"}}
	from := metadata.Pairs(":authority", "sluice", "content-type", "application/grpc", "traceparent", "t", "user-agent", "Envoy")
	header := metadata.MD{}
	info := &tap.Info{Header: header}
	if n := testing.AllocsPerRun(100, func() {
		maps.Copy(header, from)
		if _, err := b.inspect(t.Context(), info); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}
