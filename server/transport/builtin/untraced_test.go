package builtin

import (
	"net"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// TestUntracedCallsDoNotAllocate verifies that answering a request does not allocate.
func TestUntracedCallsDoNotAllocate(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	client, raw := net.Pipe()
	t.Cleanup(func() { _, _ = client.Close(), raw.Close() })
	c := (*calls)(newConnection(New(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false)}), raw))
	call := &h2.Call{Stream: 1, Method: methodShouldRateLimit, Message: marshal(t, simpleRequest()), Timeout: time.Second, HasTimeout: true}
	if n := must.AllocsPerRun(1000, func() {
		if reply, status, later := c.Call(call); len(reply) == 0 || status.Code != 0 || later != nil {
			t.Fatalf("Call() = %q, %v, %v, want a reply", reply, status, later)
		}
	}); n != 0 {
		t.Errorf("a request allocates %v times, want 0", n)
	}
}
