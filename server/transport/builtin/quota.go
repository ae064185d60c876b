package builtin

import (
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// methodQuotas is the index of the method that is registered second.
const methodQuotas = 1

// quotaStream is a stream of the rate limit quota service. It has no goroutine: reports are decoded
// in the connection's batches, chunk by chunk. One message at a time is sent, followed by a mark,
// whose acknowledgement confirms that the client has received the message.
type quotaStream struct {
	conn   *connection
	stream uint32
	quota  quota.Stream
	queued atomic.Bool // it is in the mailbox

	// The following fields are guarded by conn.mu.
	unsent  int // bytes of messages that wait for a window
	pending bool
	seq     uint64     // sequence number of the newest message
	status  *h2.Status // status with which the stream is to end, or nil
	closed  bool
}

var (
	_ h2.ChunkedCall = (*quotaStream)(nil)
	_ h2.MarkHandler = (*quotaStream)(nil)
	_ completion     = (*quotaStream)(nil)
)

// openQuotas opens a stream.
func (c *connection) openQuotas(call *h2.Call) (h2.StreamingCall, h2.Status) {
	if c.h2.Draining() {
		return nil, statusOf(errDraining)
	}
	q := &quotaStream{conn: c, stream: call.Stream}
	addr := c.raw.RemoteAddr()
	stream, err := c.Quotas.Open(quota.Peer{
		Client: c.client, Identity: access.IdentityOf(c.info, addr), Address: transport.MachineOf(addr),
	}, q.queue)
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

// queue queues the stream in the mailbox, to send what is pending.
func (q *quotaStream) queue() {
	if !q.queued.Swap(true) {
		q.conn.postCompletion(q)
	}
}

func (q *quotaStream) ReceiveChunk(p []byte, remaining int) {
	if q.status != nil {
		return
	}
	if err := q.quota.Feed(p, remaining == 0); err != nil {
		q.endWith(statusOf(err))
	}
	q.conn.shared.buffered.shed() // the service may use more memory now
}

// Receive implements [h2.StreamingCall]. It is never called.
func (q *quotaStream) Receive([]byte) {}

func (q *quotaStream) RequestEnded(s h2.Status) { q.endWith(s) }

// endWith ends the stream in the next batch.
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

// MarkAcknowledged implements [h2.MarkHandler]. A mark has the low 24 bits of a sequence number.
// Marks are acknowledged in their order.
func (q *quotaStream) MarkAcknowledged(mark uint32) {
	const bits = 1<<24 - 1
	behind := (uint32(q.seq) - mark) & bits //nolint:gosec // truncated on purpose
	if uint64(behind) < q.seq {
		q.quota.Confirm(q.seq - uint64(behind))
	}
}

// Cancel implements [h2.PendingCall].
func (q *quotaStream) Cancel() { q.close() }

// close closes the stream. It is called in a batch.
func (q *quotaStream) close() {
	q.closed = true
	delete(q.conn.quotaStreams, q)
	q.quota.Close()
}

func (q *quotaStream) sendLocked() {
	q.queued.Store(false)
	c := q.conn
	if err := q.quota.Err(); err != nil && q.status == nil {
		status := statusOf(err)
		q.status = &status
	}
	switch {
	case q.closed:
		return
	case q.status != nil && q.unsent > 0: // trailers would have to wait for the client to read
		c.out.bytes = c.h2.Abort(c.out.bytes, q.stream)
		return
	case q.status != nil:
		q.close()
		c.out.bytes = c.h2.Finish(c.out.bytes, q.stream, *q.status, nil)
		return
	case q.unsent > 0: // Sent queues it again
		q.pending = true
		return
	}
	message := getOutput()
	defer message.release()
	var seq uint64
	if message.bytes, seq, q.pending = q.quota.AppendMessage(message.bytes); seq == 0 {
		return
	}
	q.seq = seq
	q.unsent = messagePrefix + len(message.bytes)
	c.out.bytes = c.h2.Send(c.out.bytes, q.stream, message.bytes)
	c.out.bytes = c.h2.Mark(c.out.bytes, q.stream, uint32(seq)) //nolint:gosec // truncated on purpose
}

// dropLocked implements [completion]. Cancel is called as well.
func (q *quotaStream) dropLocked() { q.queued.Store(false) }

// endQuotaStreamsLocked ends all streams of the quota service. Envoy opens a new one, on another
// connection, within five seconds, and applies the last assignments until then.
func (c *connection) endQuotaStreamsLocked() {
	for q := range c.quotaStreams {
		q.endWith(statusOf(errDraining))
	}
}

var errDraining = status.Error(codes.Unavailable, "the connection is ending")
