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

// quotas describes RateLimitQuotaService, for reflection.
var quotas = grpc.ServiceDesc{
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
	posted atomic.Bool // it is in the connection's inbox

	// What follows is guarded by conn.turnMu.
	ahead  int // bytes of messages that have not left
	more   bool
	seq    uint64     // of the newest message
	status *h2.Status // with which the stream is to end
	over   bool
}

var (
	_ h2.Pieces = (*quotaStream)(nil)
	_ h2.Marker = (*quotaStream)(nil)
	_ finisher  = (*quotaStream)(nil)
)

// openQuotas begins a stream.
func (c *calls) openQuotas(call *h2.Call) (h2.Conversation, h2.Status) {
	if c.h2.Draining() {
		return nil, statusOf(errDraining)
	}
	q := &quotaStream{conn: (*connection)(c), stream: call.Stream}
	addr := c.raw.RemoteAddr()
	stream, err := c.Quotas.Open(rlqs.Peer{Client: c.client, Identity: access.IdentityOf(c.info, addr), Address: transport.MachineOf(addr)}, q.post)
	if err != nil {
		return nil, statusOf(err)
	}
	q.quota = stream
	if c.quotas == nil {
		c.quotas = map[*quotaStream]struct{}{}
	}
	c.quotas[q] = struct{}{}
	return q, h2.Status{}
}

// post has the stream look in the connection's next turn whether there is something to send.
func (q *quotaStream) post() {
	if !q.posted.Swap(true) {
		q.conn.finish(q)
	}
}

func (q *quotaStream) Piece(p []byte, follow int) {
	if q.status != nil {
		return
	}
	if err := q.quota.Feed(p, follow == 0); err != nil {
		q.end(statusOf(err))
	}
	q.conn.shared.parked.shed() // the service may hold more now
}

// Receive implements [h2.Conversation]. It is never called.
func (q *quotaStream) Receive([]byte, bool) {}

func (q *quotaStream) End(s h2.Status) { q.end(s) }

// end has the stream end in the next turn.
func (q *quotaStream) end(s h2.Status) {
	if q.status == nil {
		q.status = &s
		q.post()
	}
}

func (q *quotaStream) Sent(n int) {
	if q.ahead -= n; q.ahead == 0 && q.more {
		q.post()
	}
}

// Marked implements [h2.Marker]. The mark is the end of the number of a message; marks are acknowledged in their order.
func (q *quotaStream) Marked(mark uint32) {
	const bits = 1<<24 - 1
	behind := (uint32(q.seq) - mark) & bits //nolint:gosec // the end of it
	if uint64(behind) < q.seq {
		q.quota.Confirm(q.seq - uint64(behind))
	}
}

// Cancel implements [h2.Later]: the client went away.
func (q *quotaStream) Cancel() { q.close() }

// close says that the stream is over. It is called in a turn.
func (q *quotaStream) close() {
	q.over = true
	delete(q.conn.quotas, q)
	q.quota.Close()
}

func (q *quotaStream) sendLocked() {
	q.posted.Store(false)
	c := q.conn
	if err := q.quota.Err(); err != nil && q.status == nil {
		status := statusOf(err)
		q.status = &status
	}
	switch {
	case q.over:
		return
	case q.status != nil && q.ahead > 0: // the client does not read, so it could take long to end the stream in order
		c.out.bytes = c.h2.Abort(c.out.bytes, q.stream)
		return
	case q.status != nil:
		q.close()
		c.out.bytes = c.h2.Finish(c.out.bytes, q.stream, *q.status, nil)
		return
	case q.ahead > 0: // Sent posts it again
		q.more = true
		return
	}
	message := takeOutput()
	defer message.release()
	var seq uint64
	if message.bytes, seq, q.more = q.quota.AppendMessage(message.bytes); seq == 0 {
		return
	}
	q.seq, q.ahead = seq, messagePrefix+len(message.bytes)
	c.out.bytes = c.h2.Send(c.out.bytes, q.stream, message.bytes)
	c.out.bytes = c.h2.Mark(c.out.bytes, q.stream, uint32(seq)) //nolint:gosec // the end of it
}

// dropLocked implements [finisher]. Cancel comes, too.
func (q *quotaStream) dropLocked() { q.posted.Store(false) }

// drainQuotasLocked ends all streams of the quota service: Envoy opens another within five seconds, elsewhere, and what
// it was told acts until then.
func (c *connection) drainQuotasLocked() {
	for q := range c.quotas {
		q.end(statusOf(errDraining))
	}
}

var errDraining = status.Error(codes.Unavailable, "the connection is ending")
