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
	raw           net.Conn
	closeOnce     sync.Once
	violationOnce sync.Once
	info          credentials.AuthInfo // of the handshake
	client        *access.Client       // the other end, by its certificate

	// mu is held in a turn, and guards what follows, up to the inbox. It is held over writes, so only
	// the reader and the flusher may take it.
	mu    sync.Mutex
	conn  net.Conn // raw within TLS, if there is TLS; nil until the handshake is over
	h2    *h2.Conn
	out   *output    // of this turn
	spare releasable // of calls that were answered in this turn, for the next
	// since is when the turn began, and at the last reading of the clock in it: the end of one call is
	// the beginning of the next.
	batchStart, clockAt time.Duration
	unfed               int  // bytes that came and were not fed
	settingsSent        bool // our SETTINGS are out; see [speaksHTTP1]
	gotSettings         bool // the client's SETTINGS have come
	ending              bool // nothing more is answered
	readerDone          bool // nothing more is read, either
	leaseConn           *leases.Connection
	quotaStreams        map[*quotaStream]struct{} // streams of the quota service; nil as long as there was none

	closed       atomic.Bool // close was called: nothing that came is answered
	closedByUs   atomic.Bool // it was ended by our doing
	pingTimedOut atomic.Bool // it was ended because a ping was not answered

	// hasToken says that it holds one of Transport.crowd. It is set in a turn, and whoever unsets it gives the
	// ticket back.
	hasToken atomic.Bool

	mailbox mailbox

	// What the watch goes by, as times of the clock. The goroutine of the connection stores it.
	activity activity
	buffered memoryShare // of shared.parked

	bridgedCalls  atomic.Int64            // calls whose goroutines run
	serverStreams transport.StreamLimiter // of those on which only the server sends

	delayedBytes      int           // bytes of held replies; guarded by turnMu
	storeBytes        int           // bytes of calls that a store decides; guarded by turnMu
	countedStoreBytes atomic.Int64  // bytes of stored that are in shared.stored
	storeCalls        atomic.Int64  // number of calls that a store decides
	storeReturned     bool          // a store has returned some of them in this turn; guarded by turnMu
	storeWake         chan struct{} // holds one if waitForStore is to look again
}

// close ends the connection at once. It may be called by anybody.
func (c *connection) close() {
	c.closed.Store(true)
	c.closeOnce.Do(func() { _ = c.raw.Close() }) // the reader meets the same error
	wake(c.storeWake)                            // the reader may wait for a store
}

func (c *connection) isEnding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending
}

// acquireTokenLocked takes a ticket in a turn that has none.
func (c *connection) acquireTokenLocked() {
	if !c.hasToken.Load() {
		c.tokens <- struct{}{}
		c.hasToken.Store(true)
	}
}

// releaseToken gives the ticket back, if there is one. Anybody may call it.
func (c *connection) releaseToken() {
	if c.hasToken.Load() && c.hasToken.Swap(false) {
		<-c.tokens
	}
}

// writeStalled is called when a write has to wait for the client. It may be a turn's, which then goes on without
// a ticket, or one of TLS beside a turn.
func (c *connection) writeStalled() {
	c.releaseToken()
	c.discountStoreBytes()
	c.stalled.add(c)
}

// writeResumed is called at the end of that write.
func (c *connection) writeResumed() { c.stalled.remove(c) }

// output is what a turn writes.
type output struct{ bytes []byte }

var outputs = sync.Pool{New: func() any { return new(output) }}

func getOutput() *output {
	o, _ := outputs.Get().(*output)
	return o
}

// maxPooledOutput is the largest buffer that is kept for another turn.
const maxPooledOutput = 32 << 10

func (o *output) release() {
	if o.bytes = o.bytes[:0]; cap(o.bytes) <= maxPooledOutput {
		outputs.Put(o)
	}
}

// reportViolation counts and logs, once, that the connection is ended because of what its client did. Ends that
// are nobody's fault, such as that of age, are not counted.
func (c *connection) reportViolation(why error) {
	c.violationOnce.Do(func() {
		h := c.Handler
		reportEnded(endedCounter(&h.Metrics.Ended, why), h.Rare, c.raw, why)
	})
}

// closeWithError closes the connection at once because of what its client did. It may be called by anybody.
func (c *connection) closeWithError(why error) {
	c.closedByUs.Store(true)
	c.pingTimedOut.Store(why == errPingTimeout) //nolint:errorlint // it is ours
	c.reportViolation(why)
	c.close()
}

func (c *connection) Usage() transport.Usage {
	w := &c.activity
	since := time.Duration(w.lastCallAt.Load())
	return transport.Usage{Busy: w.openCalls.Load() > 0, Used: since > w.startedAt, Since: since}
}

func (c *connection) Retire(gently bool) {
	if gently {
		c.postCommand(commandRetire)
		return
	}
	c.closedByUs.Store(true)
	c.close()
}

// reportHandshakeTimeout blames a connection whose client sent no SETTINGS in time.
func (c *connection) reportHandshakeTimeout(err error) {
	timeout, ok := errors.AsType[net.Error](err)
	if !ok || !timeout.Timeout() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gotSettings && !c.ending {
		c.reportViolation(errHandshakeTimeout)
	}
}

// postCommand has something done in the next turn.
func (c *connection) postCommand(o commands) {
	if o&commandDrainStop != 0 {
		c.activity.drainAt.Store(int64(c.Handler.Clock.Elapsed()))
	}
	c.mailbox.post(func() { c.mailbox.commands |= o })
}

// postCompletion has something go out in the next turn.
func (c *connection) postCompletion(f completion) {
	c.mailbox.post(func() { c.mailbox.completions = append(c.mailbox.completions, f) })
}

// peer is the other end, for contexts.
func (c *connection) peer() *peer.Peer {
	return &peer.Peer{Addr: c.raw.RemoteAddr(), LocalAddr: c.raw.LocalAddr(), AuthInfo: c.info}
}

// decompressLocked decompresses a message in a turn, which takes a ticket for one that is not small.
func (c *connection) decompressLocked(message []byte, most int) (*inflater, error) {
	z, err := inflateSmall(message, most)
	if errors.Is(err, errNeedsToken) {
		c.acquireTokenLocked()
		z, err = inflateLarge(message, most, func(held int) {
			c.updateBufferedLocked(held)
			yield()
		})
	}
	if err != nil {
		return nil, decompressError(err, most)
	}
	return z, nil
}

// updateBufferedLocked says how many bytes the connection holds of what is on its way, and of a message that is being
// inflated. It is called at the end of each turn, and while a message is inflated.
func (c *connection) updateBufferedLocked(inflating int) {
	c.shared.buffered.set(&c.buffered, int64(c.h2.Buffered()+c.unfed+c.delayedBytes+c.storeBytes+inflating))
}

// checkActivity closes a connection whose client took too long, or has its next turn do what it is time for.
func (c *connection) checkActivity(now time.Duration) {
	switch todo, over, why := c.activity.check(now, &c.Limits); {
	case why != nil:
		c.closeWithError(why)
	case over:
		c.close()
	case todo != 0:
		c.postCommand(todo)
	}
}

// releasable is memory that is used again.
type releasable interface{ release() }

// decompressError is the answer to a message that could not be inflated, in grpc-go's words.
func decompressError(err error, most int) error {
	if errors.Is(err, errInflatedTooLarge) {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message after decompression larger than max %d", most)
	}
	return status.Errorf(codes.Internal, "grpc: failed to decompress the received message: %v", err)
}
