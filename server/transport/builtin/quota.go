package builtin

import (
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/rlqs"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// quotaServiceDesc describes RateLimitQuotaService, for reflection.
var quotaServiceDesc = grpc.ServiceDesc{
	ServiceName: rlqs.ServiceName, Metadata: "envoy/service/rate_limit_quota/v3/rlqs.proto",
	Streams: []grpc.StreamDesc{{StreamName: rlqs.MethodName, ClientStreams: true, ServerStreams: true}},
}

// methodQuotas is the number of the method that is registered second.
const methodQuotas = 1

// quotaStream is a stream of the rate limit quota service, without a goroutine: reports come in the connection's turns,
// piece by piece, and one message at a time goes out, followed by a mark. The acknowledgement of the mark says that
// the client has it.
type quotaStream struct {
	conn   *connection
	stream uint32
	quota  *rlqs.Stream
	queued atomic.Bool // it is in the connection's inbox

	// What follows is guarded by conn.turnMu.
	unsent  int // bytes of messages that have not left
	pending bool
	seq     uint64     // of the newest message
	status  *h2.Status // with which the stream is to end
	closed  bool
}

var (
	_ h2.ChunkedCall = (*quotaStream)(nil)
	_ h2.MarkHandler = (*quotaStream)(nil)
	_ completion     = (*quotaStream)(nil)
)

// openQuotas begins a stream.
func (c *calls) openQuotas(call *h2.Call) (h2.StreamingCall, h2.Status) {
	if c.h2.Draining() {
		return nil, statusOf(errDraining)
	}
	q := &quotaStream{conn: (*connection)(c), stream: call.Stream}
	addr := c.raw.RemoteAddr()
	stream, err := c.Quotas.Open(rlqs.Peer{Client: c.client, Identity: access.IdentityOf(c.info, addr), Address: transport.MachineOf(addr)}, q.queue)
	if err != nil {
		return nil, statusOf(err)
	}
	q.quota = stream
	if c.quotaStreams == nil {
		c.quotaStreams = map[*quotaStream]struct{}{}
	}
	c.quotaStreams[q] = struct{}{}
	return q, h2.Status{}
}

// queue has the stream look in the connection's next turn whether there is something to send.
func (q *quotaStream) queue() {
	if !q.queued.Swap(true) {
		q.conn.postCompletion(q)
	}
}

func (q *quotaStream) ReceiveChunk(p []byte, follow int) {
	if q.status != nil {
		return
	}
	if err := q.quota.Report(p, follow == 0); err != nil {
		q.endWith(statusOf(err))
	}
	q.conn.shared.buffered.shed() // the service may hold more now
}

// Receive implements [h2.Conversation]. It is never called.
func (q *quotaStream) Receive([]byte, bool) {}

func (q *quotaStream) RequestEnded(s h2.Status) { q.endWith(s) }

// endWith has the stream end in the next turn.
func (q *quotaStream) endWith(s h2.Status) {
	if q.status == nil {
		q.status = &s
		q.queue()
	}
}

func (q *quotaStream) Sent(n int) {
	if q.unsent -= n; q.unsent == 0 && q.pending {
		q.queue()
	}
}

// MarkAcknowledged implements [h2.Marker]. The mark is the end of the number of a message; marks are acknowledged in their order.
func (q *quotaStream) MarkAcknowledged(mark uint32) {
	const bits = 1<<24 - 1
	behind := (uint32(q.seq) - mark) & bits //nolint:gosec // the end of it
	if uint64(behind) < q.seq {
		q.quota.Confirmed(q.seq - uint64(behind))
	}
}

// Cancel implements [h2.Later]: the client went away.
func (q *quotaStream) Cancel() { q.close() }

// close says that the stream is over. It is called in a turn.
func (q *quotaStream) close() {
	q.closed = true
	delete(q.conn.quotaStreams, q)
	q.quota.Close()
}

func (q *quotaStream) sendLocked() {
	q.queued.Store(false)
	c := q.conn
	if err := q.quota.Ended(); err != nil && q.status == nil {
		status := statusOf(err)
		q.status = &status
	}
	switch {
	case q.closed:
		return
	case q.status != nil && q.unsent > 0: // the client does not read, so it could take long to end the stream in order
		c.out.bytes = c.h2.Abort(c.out.bytes, q.stream)
		return
	case q.status != nil:
		q.close()
		c.out.bytes = c.h2.Finish(c.out.bytes, q.stream, *q.status, nil)
		return
	case q.unsent > 0: // Sent posts it again
		q.pending = true
		return
	}
	message := getOutput()
	defer message.release()
	var seq uint64
	if message.bytes, seq, q.pending = q.quota.Take(message.bytes); seq == 0 {
		return
	}
	q.seq, q.unsent = seq, messagePrefix+len(message.bytes)
	c.out.bytes = c.h2.Send(c.out.bytes, q.stream, message.bytes)
	c.out.bytes = c.h2.Mark(c.out.bytes, q.stream, uint32(seq)) //nolint:gosec // the end of it
}

// dropLocked implements [finisher]. Cancel comes, too.
func (q *quotaStream) dropLocked() { q.queued.Store(false) }

// endQuotaStreamsLocked ends all streams of the quota service: Envoy opens another within five seconds, elsewhere, and what
// it was told acts until then.
func (c *connection) endQuotaStreamsLocked() {
	for q := range c.quotaStreams {
		q.endWith(statusOf(errDraining))
	}
}

var errDraining = status.Error(codes.Unavailable, "the connection is ending")
