package builtin

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// callTrace reports a rate-limit request to the tracer: the same events as grpc-go, in the same
// order. A nil callTrace reports nothing.
type callTrace struct {
	handler   stats.Handler
	context   context.Context //nolint:containedctx // the span is in it
	startedAt time.Time
	in        stats.InPayload
}

// newCallTrace starts the trace of a call to a path.
func newCallTrace(to stats.Handler, path string, from *peer.Peer, call *h2.Call) *callTrace {
	md, _ := metadataOf(call.Fields) // h2 has rejected invalid metadata
	ctx := metadata.NewIncomingContext(peer.NewContext(context.Background(), from), md)
	t := &callTrace{handler: to, startedAt: time.Now()} //nolint:forbidigo // a span has times of the wall clock
	t.context = to.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: path})
	t.report(&stats.InHeader{FullMethod: path, RemoteAddr: from.Addr, LocalAddr: from.LocalAddr, Header: md})
	t.report(&stats.Begin{BeginTime: t.startedAt})
	t.in = stats.InPayload{CompressedLength: len(call.Message), WireLength: messagePrefix + len(call.Message)}
	return t
}

func (t *callTrace) report(e stats.RPCStats) { t.handler.HandleRPC(t.context, e) }

// contextOf returns the context of the call's span.
func (t *callTrace) contextOf() context.Context {
	if t == nil {
		return context.Background()
	}
	return t.context
}

// received reports the request.
func (t *callTrace) received(message []byte) {
	if t == nil {
		return
	}
	t.in.Payload, t.in.Length, t.in.RecvTime = message, len(message), time.Now() //nolint:forbidigo // as above
	t.report(&t.in)
}

// answered reports the reply, or the error, and ends the trace.
func (t *callTrace) answered(reply []byte, err error) {
	if t == nil {
		return
	}
	if err == nil {
		t.report(&stats.OutHeader{})
		t.report(&stats.OutPayload{
			Payload: reply, Length: len(reply), CompressedLength: len(reply), WireLength: messagePrefix + len(reply),
			SentTime: time.Now(), //nolint:forbidigo // as above
		})
	}
	t.report(&stats.OutTrailer{})
	t.endSpan(err)
}

// endSpan ends the trace of a call, after its reply or without one.
func (t *callTrace) endSpan(err error) {
	if t != nil {
		t.report(&stats.End{BeginTime: t.startedAt, EndTime: time.Now(), Error: err}) //nolint:forbidigo // as above
	}
}
