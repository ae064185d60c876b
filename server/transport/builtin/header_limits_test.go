package builtin

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// TestHeaderLimit sends headers of the maximum size and larger ones. Only the call with the larger
// ones fails.
func TestHeaderLimit(t *testing.T) {
	t.Parallel()
	const bound = 2 << 10
	s := service(t, answer.Settings{}, "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000}}, "+
		"{key: held, rate_limit: {unit: minute, requests_per_unit: 1, algorithm: leaky_bucket, slack: 0, max_wait: 60s}}]}")
	r := serve(t, s, transport.Limits{MaxHeaderBytes: bound})
	conn := r.tcp(t)
	client := newRawClient(t, conn)
	held := simpleRequest()
	held.Descriptors[0].Entries[0].Key = "held"
	client.call(marshal(t, held), 0)
	client.readEnds(1)
	waits := client.call(marshal(t, held), 0) // until all others are answered
	calls := map[uint32]int{}
	for _, size := range []int{100, 1000, 1500, 1600, 2000, 3000, 3700} {
		calls[client.call(marshal(t, simpleRequest()), size)] = size
	}
	ends := client.readEnds(len(calls))
	for stream, size := range calls {
		want := "0"
		if size >= 2000 {
			want = "8"
		}
		if ends[stream] != want {
			t.Errorf("a call with a header of %d bytes ends with %q, want %s", size, ends[stream], want)
		}
	}
	if end, ok := ends[waits]; ok {
		t.Errorf("a call that waits on the same connection ended with %q", end)
	}
	if got := testutil.ToFloat64(s.Metrics().Rejected.Headers); got != 3 {
		t.Errorf("%v calls counted as beyond the bound, want 3", got)
	}
}

// TestKeptTracingHeaders sends more tracing headers than a call keeps.
func TestKeptTracingHeaders(t *testing.T) {
	traces := []string{"traceparent", "b3"}
	keep := func(name []byte, size int) bool { return shouldKeepHeader(traces, name, size) }
	for name, want := range map[string]bool{"b3": true, "traceparent": true, "b": false, "cookie": false} {
		if got := keep([]byte(name), 100); got != want {
			t.Errorf("%s is kept: %v, want %v", name, got, want)
		}
	}
	if keep([]byte("b3"), maxTraceHeader+1) {
		t.Error("a header that is too long is kept")
	}
	if name := []byte("b3"); must.AllocsPerRun(100, func() { keep(name, 10) }) != 0 {
		t.Error("shouldKeepHeader allocates")
	}
}
