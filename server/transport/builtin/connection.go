package builtin

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/leases"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// connection is a connection of the built-in transport.
//
// Its goroutine reads, and takes turns: it feeds package h2 with what came, which answers most calls
// at once, and writes what came out with one call of the system. Who finishes something later, such
// as a held reply, leaves it in the inbox; whoever finds that empty starts a goroutine that takes
// turns until it is empty again. So nobody else waits for the client, and many answers leave with one
// write.
type connection struct {
	*shared
	raw     net.Conn
	closing sync.Once
	blaming sync.Once
	info    credentials.AuthInfo // of the handshake
	client  *access.Client       // the other end, by its certificate

	// turnMu is held in a turn, and guards what follows, up to the inbox. It is held over writes, so only
	// the reader and the flusher may take it.
	turnMu sync.Mutex
	conn   net.Conn // raw within TLS, if there is TLS; nil until the handshake is over
	h2     *h2.Conn
	out    *output  // of this turn
	spare  releaser // of calls that were answered in this turn, for the next
	// since is when the turn began, and at the last reading of the clock in it: the end of one call is
	// the beginning of the next.
	since, at time.Duration
	rest      int  // bytes that came and were not fed
	started   bool // our SETTINGS are out; see [speaksHTTP1]
	begun     bool // the client's SETTINGS have come
	ending    bool // nothing more is answered
	closed    bool // nothing more is read, either
	lessee    *leases.Connection
	quotas    map[*quotaStream]struct{} // streams of the quota service; nil as long as there was none

	shut atomic.Bool // close was called: nothing that came is answered
	ours atomic.Bool // it was ended by our doing
	deaf atomic.Bool // it was ended because a ping was not answered

	// ticket says that it holds one of Transport.crowd. It is set in a turn, and whoever unsets it gives the
	// ticket back.
	ticket atomic.Bool

	inbox inbox

	// What the watch goes by, as times of the clock. The goroutine of the connection stores it.
	watched watched
	parked  share // of shared.parked

	bridged atomic.Int64     // calls whose goroutines run
	watches transport.Places // of those on which only the server sends

	later    int           // bytes of held replies; guarded by turnMu
	stored   int           // bytes of calls that a store decides; guarded by turnMu
	counted  atomic.Int64  // bytes of stored that are in shared.stored
	deciding atomic.Int64  // number of calls that a store decides
	fewer    bool          // a store has returned some of them in this turn; guarded by turnMu
	returned chan struct{} // holds one if waitForStore is to look again
}

// close ends the connection at once. It may be called by anybody.
func (c *connection) close() {
	c.shut.Store(true)
	c.closing.Do(func() { _ = c.raw.Close() }) // the reader meets the same error
	wake(c.returned)                           // the reader may wait for a store
}

func (c *connection) isEnding() bool {
	c.turnMu.Lock()
	defer c.turnMu.Unlock()
	return c.ending
}

// enterCrowdLocked takes a ticket in a turn that has none.
func (c *connection) enterCrowdLocked() {
	if !c.ticket.Load() {
		c.crowd <- struct{}{}
		c.ticket.Store(true)
	}
}

// leaveCrowd gives the ticket back, if there is one. Anybody may call it.
func (c *connection) leaveCrowd() {
	if c.ticket.Load() && c.ticket.Swap(false) {
		<-c.crowd
	}
}

// stalls is called when a write has to wait for the client. It may be a turn's, which then goes on without
// a ticket, or one of TLS beside a turn.
func (c *connection) stalls() {
	c.leaveCrowd()
	c.stallStored()
	c.stalled.enter(c)
}

// flows is called at the end of that write.
func (c *connection) flows() { c.stalled.leave(c) }

// output is what a turn writes.
type output struct{ bytes []byte }

var outputs = sync.Pool{New: func() any { return new(output) }}

func takeOutput() *output {
	o, _ := outputs.Get().(*output)
	return o
}

// mostOutputKept is the largest buffer that is kept for another turn.
const mostOutputKept = 32 << 10

func (o *output) release() {
	if o.bytes = o.bytes[:0]; cap(o.bytes) <= mostOutputKept {
		outputs.Put(o)
	}
}

// blame counts and logs, once, that the connection is ended because of what its client did. Ends that
// are nobody's fault, such as that of age, are not counted.
func (c *connection) blame(why error) {
	c.blaming.Do(func() {
		h := c.Handler
		countEnded(endedBecause(&h.Metrics.ClosedConnections, why), h.Rare, c.raw, why)
	})
}

// closeWith closes the connection at once because of what its client did. It may be called by anybody.
func (c *connection) closeWith(why error) {
	c.ours.Store(true)
	c.deaf.Store(why == errSilent) //nolint:errorlint // it is ours
	c.blame(why)
	c.close()
}

func (c *connection) Usage() transport.Usage {
	w := &c.watched
	since := time.Duration(w.calledAt.Load())
	return transport.Usage{Busy: w.open.Load() > 0, Used: since > w.begun, Since: since}
}

func (c *connection) Retire(gently bool) {
	if gently {
		c.order(orderRetire)
		return
	}
	c.ours.Store(true)
	c.close()
}

// neverBegan blames a connection whose client sent no SETTINGS in time.
func (c *connection) neverBegan(err error) {
	timeout, ok := errors.AsType[net.Error](err)
	if !ok || !timeout.Timeout() {
		return
	}
	c.turnMu.Lock()
	defer c.turnMu.Unlock()
	if !c.begun && !c.ending {
		c.blame(errBegin)
	}
}

// order has something done in the next turn.
func (c *connection) order(o orders) {
	if o&orderStop != 0 {
		c.watched.toldAt.Store(int64(c.Handler.Clock.Elapsed()))
	}
	c.inbox.post(func() { c.inbox.orders |= o })
}

// finish has something go out in the next turn.
func (c *connection) finish(f finisher) {
	c.inbox.post(func() { c.inbox.finished = append(c.inbox.finished, f) })
}

// peer is the other end, for contexts.
func (c *connection) peer() *peer.Peer {
	return &peer.Peer{Addr: c.raw.RemoteAddr(), LocalAddr: c.raw.LocalAddr(), AuthInfo: c.info}
}

// inflateLocked decompresses a message in a turn, which takes a ticket for one that is not small.
func (c *connection) inflateLocked(message []byte, most int) (*inflater, error) {
	z, err := inflateFreely(message, most)
	if errors.Is(err, errNotSmall) {
		c.enterCrowdLocked()
		z, err = inflateLarge(message, most, func(held int) {
			c.parksLocked(held)
			park()
		})
	}
	if err != nil {
		return nil, notInflated(err, most)
	}
	return z, nil
}

// parksLocked says how many bytes the connection holds of what is on its way, and of a message that is being
// inflated. It is called at the end of each turn, and while a message is inflated.
func (c *connection) parksLocked(inflating int) {
	c.shared.parked.set(&c.parked, int64(c.h2.Parked()+c.rest+c.later+c.stored+inflating))
}

// watch closes a connection whose client took too long, or has its next turn do what it is time for.
func (c *connection) watch(now time.Duration) {
	switch todo, over, why := c.watched.look(now, &c.Limits); {
	case why != nil:
		c.closeWith(why)
	case over:
		c.close()
	case todo != 0:
		c.order(todo)
	}
}

// releaser is memory that is used again.
type releaser interface{ release() }

// notInflated is the answer to a message that could not be inflated, in grpc-go's words.
func notInflated(err error, most int) error {
	if errors.Is(err, errInflatedTooLarge) {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message after decompression larger than max %d", most)
	}
	return status.Errorf(codes.Internal, "grpc: failed to decompress the received message: %v", err)
}
