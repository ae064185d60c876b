package transport

import (
	"bytes"
	"testing"
)

// TestHeadersThatTracesKeep has a call with more headers than tracing reads.
func TestHeadersThatTracesKeep(t *testing.T) {
	keep := (&Config{TraceHeaders: []string{"traceparent", "b3"}}).KeepsHeader
	for name, want := range map[string]bool{"b3": true, "traceparent": true, "b": false, "cookie": false} {
		if got := keep([]byte(name), 100); got != want {
			t.Errorf("%s is kept: %v, want %v", name, got, want)
		}
	}
	if keep([]byte("b3"), maxTraceHeader+1) {
		t.Error("a header that is too long is kept")
	}
	if name := bytes.Repeat([]byte("b3"), 1); testing.AllocsPerRun(100, func() { keep(name, 10) }) != 0 {
		t.Error("looking whether a header is kept allocates")
	}
}
