package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// recorder records the events that a transport reports for its calls.
type recorder struct {
	mu     sync.Mutex
	events []string
	ended  chan struct{} // receives an element for each ended call
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
}

func (*recorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*recorder) HandleConn(context.Context, stats.ConnStats)                       {}

func (r *recorder) TagRPC(ctx context.Context, i *stats.RPCTagInfo) context.Context {
	p, ok := peer.FromContext(ctx)
	_, incoming := metadata.FromIncomingContext(ctx)
	r.note("tag %s, peer %v, metadata %v", i.FullMethodName, ok && p.Addr != nil && p.LocalAddr != nil && p.AuthInfo != nil, incoming)
	return context.WithValue(ctx, r, "tagged")
}

func (r *recorder) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if ctx.Value(r) != "tagged" {
		r.note("the context has no tag")
	}
	switch s := s.(type) {
	case *stats.InHeader:
		r.note("in header %s %q, addresses %v", s.FullMethod, s.Compression, s.RemoteAddr != nil && s.LocalAddr != nil)
	case *stats.Begin:
		r.note("begin %v %v %v", s.IsClientStream, s.IsServerStream, s.BeginTime.IsZero())
	case *stats.InPayload:
		r.note("in payload %d, %d, %d %v", s.Length, s.CompressedLength, s.WireLength, s.RecvTime.IsZero())
	case *stats.OutHeader:
		r.note("out header")
	case *stats.OutPayload:
		r.note("out payload %d %v", s.Length, s.SentTime.IsZero())
	case *stats.OutTrailer:
		r.note("out trailer")
	case *stats.End:
		r.note("end %v %v", s.Error, s.EndTime.Before(s.BeginTime))
		r.ended <- struct{}{}
	default:
		r.note("%T", s)
	}
}

// TestTransportsReportSameEvents makes the same calls over both transports: admitted,
// rejected, too large, delayed, and cancelled while delayed. Tracing gets the same events, except
// that the built-in transport does not read a request that is too large.
func TestTransportsReportSameEvents(t *testing.T) {
	events := map[string][]string{}
	for _, name := range []string{transportGRPC, transportBuiltin} {
		s := service(t, answer.Settings{}, oneRule+"\n---\n{domain: delayed, descriptors: [{key: k, rate_limit: {algorithm: leaky_bucket, unit: hour, requests_per_unit: 72000, slack: 0, max_wait: 1m, max_waiting: 1200}}]}")
		r := New(Options{GRPCAddr: "127.0.0.1:0", Transport: name, Limits: fillLimits(transport.Limits{}), DrainTimeout: time.Minute}, s, zap.NewNop())
		rec := &recorder{ended: make(chan struct{}, 1)}
		r.tracer = rec
		if err := r.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		conn := (&running{addr: map[string]string{"grpc": r.grpcConn.Addr().String()}}).dial(t)
		client := rls.NewRateLimitServiceClient(conn)
		checkOK(t, conn)
		<-rec.ended
		if _, err := client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{}); status.Code(err) != codes.Unknown {
			t.Error(err)
		}
		<-rec.ended
		large := simpleRequest()
		large.Domain = strings.Repeat("d", fillLimits(transport.Limits{}).MaxMessageBytes)
		if _, err := client.ShouldRateLimit(t.Context(), large); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		<-rec.ended
		delayed := simpleRequest()
		delayed.Domain = "delayed"
		for range 2 {
			if _, err := client.ShouldRateLimit(t.Context(), delayed); err != nil {
				t.Error(err)
			}
			<-rec.ended
		}
		delayed.HitsAddend = 1000 // delays the reply for 50 seconds
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { _, _ = client.ShouldRateLimit(ctx, delayed) })
		await(t, "a reply is delayed", func() bool { return testutil.ToFloat64(s.Metrics().PendingDelays) == 1 })
		cancel()
		<-rec.ended
		waiting.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		events[name] = slices.DeleteFunc(rec.events, func(e string) bool {
			return strings.HasPrefix(e, fmt.Sprintf("in payload %d", proto.Size(large)))
		})
	}
	if len(events[transportGRPC]) == 0 {
		t.Fatal("grpc-go reports no events")
	}
	if diff := cmp.Diff(events[transportGRPC], events[transportBuiltin]); diff != "" {
		t.Errorf("events over grpc-go (-) and over the built-in transport (+):\n%s", diff)
	}
}
