package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// tracedEvents records the events that tracing receives.
type tracedEvents struct{ types []string }

func (*tracedEvents) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*tracedEvents) HandleConn(context.Context, stats.ConnStats)                       {}
func (*tracedEvents) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }

func (e *tracedEvents) HandleRPC(_ context.Context, s stats.RPCStats) {
	e.types = append(e.types, strings.TrimPrefix(fmt.Sprintf("%T", s), "*stats."))
}

// TestTracedCall checks that tracing receives the events of grpc-go in its order.
func TestTracedCall(t *testing.T) {
	for want, err := range map[string]error{
		"InHeader Begin InPayload OutHeader OutPayload OutTrailer End": nil,
		"InHeader Begin InPayload OutTrailer End":                      errors.New("no reply"),
	} {
		e := new(tracedEvents)
		trace := newCallTrace(e, "/a/b", new(peer.Peer), new(h2.Call))
		trace.received([]byte("request"))
		trace.answered([]byte("reply"), err)
		if got := strings.Join(e.types, " "); got != want {
			t.Errorf("error %v: the events are %s, want %s", err, got, want)
		}
	}
}
