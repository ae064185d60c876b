package builtin

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// callTrace tells tracing of a rate-limit request: the events that grpc-go would have, in their order.
// All methods may be called on nil, which is a call that is not traced.
type callTrace struct {
	to      stats.Handler
	context context.Context //nolint:containedctx // the span is in it
	begun   time.Time
	in      stats.InPayload
}

// newCallTrace begins the trace of a call to a path.
func newCallTrace(to stats.Handler, path string, from *peer.Peer, call *h2.Call) *callTrace {
	md, _ := metadataOf(call.Fields) // h2 has rejected what cannot be read
	ctx := metadata.NewIncomingContext(peer.NewContext(context.Background(), from), md)
	t := &callTrace{to: to, begun: time.Now()} //nolint:forbidigo // a span has times of the wall clock
	t.context = to.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: path})
	t.event(&stats.InHeader{FullMethod: path, RemoteAddr: from.Addr, LocalAddr: from.LocalAddr, Compression: call.Encoding, Header: md})
	t.event(&stats.Begin{BeginTime: t.begun})
	t.in = stats.InPayload{CompressedLength: len(call.Message), WireLength: messagePrefix + len(call.Message)}
	return t
}

func (t *callTrace) event(e stats.RPCStats) { t.to.HandleRPC(t.context, e) }

// contextOf returns the context of the call's span.
func (t *callTrace) contextOf() context.Context {
	if t == nil {
		return context.Background()
	}
	return t.context
}

// received tells of the request.
func (t *callTrace) received(message []byte) {
	if t == nil {
		return
	}
	t.in.Payload, t.in.Length, t.in.RecvTime = message, len(message), time.Now() //nolint:forbidigo // as above
	t.event(&t.in)
}

// answered tells of the reply, or of the error in its place, and ends the trace.
func (t *callTrace) answered(reply []byte, err error) {
	if t == nil {
		return
	}
	if err == nil {
		t.event(&stats.OutHeader{})
		t.event(&stats.OutPayload{
			Payload: reply, Length: len(reply), CompressedLength: len(reply), WireLength: messagePrefix + len(reply),
			SentTime: time.Now(), //nolint:forbidigo // as above
		})
	}
	t.event(&stats.OutTrailer{})
	t.end(err)
}

// end ends the trace of a call that nobody waits for, or that answered has told of.
func (t *callTrace) end(err error) {
	if t != nil {
		t.event(&stats.End{BeginTime: t.begun, EndTime: time.Now(), Error: err}) //nolint:forbidigo // as above
	}
}
