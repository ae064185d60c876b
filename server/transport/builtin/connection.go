package builtin

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/leases"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// connection is a connection of the built-in transport.
//
// Its goroutine reads and processes the input in batches: it feeds package h2, which answers most
// calls at once, and writes all output of a batch with one system call. Completions that arrive
// later, such as delayed replies, are queued in the mailbox. The goroutine that queues the first
// one starts a flusher, which runs until the mailbox is empty. So other goroutines never wait for
// the client, and many replies share one write.
type connection struct {
	*shared
	raw           net.Conn
	bounded       transport.BoundedConn // below raw, or nil
	closeOnce     sync.Once
	violationOnce sync.Once
	info          credentials.AuthInfo // from the handshake
	client        *access.Client       // the peer, as identified by its certificate

	// mu is locked while a batch is processed and written, and guards the fields up to mailbox.
	// Only the reader and the flusher may lock it, because a write can block.
	mu    sync.Mutex
	conn  net.Conn // raw, or TLS over it; nil during the handshake
	h2    *h2.Conn
	out   *output        // output of the current batch
	spare *rateLimitCall // memory of calls answered in this batch, reused by the next call
	// batchStart is when the batch began, and clockAt the last clock reading in it: a call starts
	// when the one before it ends.
	batchStart, clockAt time.Duration
	unfed               int  // bytes received but not fed to h2
	settingsSent        bool // our SETTINGS were sent, since the client does not speak HTTP/1
	gotSettings         bool // the client's SETTINGS were received
	ending              bool // no further call is answered
	readerDone          bool // the reader has returned
	leaseConn           *leases.Connection
	quotaStreams        map[*quotaStream]struct{} // open streams of the quota service, or nil

	closed       atomic.Bool // close was called; unprocessed input is dropped
	closedByUs   atomic.Bool // closed by this process
	pingTimedOut atomic.Bool // closed because a ping was not answered

	// hasToken is set while the connection has one of the tokens. It is set in a batch; the
	// goroutine that clears it releases the token.
	hasToken atomic.Bool

	mailbox mailbox

	activity activity
	buffered memoryShare // share in shared.buffered

	bridgedCalls  atomic.Int64            // number of running handler goroutines
	serverStreams transport.StreamLimiter // open streams on which only the server sends

	delayedBytes      int           // bytes of delayed replies; guarded by mu
	storeBytes        int           // bytes of calls pending in a store; guarded by mu
	countedStoreBytes atomic.Int64  // the part of storeBytes that is included in shared.storeMemory
	storeCalls        atomic.Int64  // number of calls pending in a store
	storeReturned     bool          // a call returned from a store in this batch; guarded by mu
	storeWake         chan struct{} // has one element if waitForStore must check again
}

// close closes the connection at once. It may be called concurrently.
func (c *connection) close() {
	c.closed.Store(true)
	c.closeOnce.Do(func() { _ = c.raw.Close() }) // the reader gets an error
	wake(c.storeWake)                            // the reader may be waiting for a store
}

func (c *connection) isEnding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending
}

// releaseToken releases the connection's token, if it has one. It may be called concurrently.
func (c *connection) releaseToken() {
	if c.hasToken.Load() && c.hasToken.Swap(false) {
		c.Tokens.ReleaseCall()
	}
}

// writeStalled is called when a write has to wait for the client. It is the write of a batch, which
// continues without a token, or a write by TLS, concurrent with a batch.
func (c *connection) writeStalled() {
	c.releaseToken()
	c.discountStoreBytes()
	c.stalled.add(c)
}

// writeResumed is called when that write ends.
func (c *connection) writeResumed() { c.stalled.remove(c) }

// output is the buffer that a batch writes to.
type output struct{ bytes []byte }

var outputs = sync.Pool{New: func() any { return new(output) }}

func getOutput() *output {
	o, _ := outputs.Get().(*output)
	return o
}

// maxPooledOutput is the largest buffer that returns to the pool.
const maxPooledOutput = 32 << 10

func (o *output) release() {
	if o.bytes = o.bytes[:0]; cap(o.bytes) <= maxPooledOutput {
		outputs.Put(o)
	}
}

// reportViolation counts and logs, once, that the connection is closed because of what its client
// did. Orderly closes, such as MaxConnectionAge, are not counted.
func (c *connection) reportViolation(why error) {
	c.violationOnce.Do(func() {
		h := c.Handler
		endedCounter(&h.Metrics.ClosedConnections, why).Inc()
		if errors.Is(why, errHTTP1) {
			h.Metrics.ClientErrors.HTTPOnGRPC.Report(h.Rare, c.raw.RemoteAddr())
			return
		}
		h.Rare.Warn("gRPC connection closed because of its client; more within ten seconds are only counted",
			zap.Stringer("peer", c.raw.RemoteAddr()), zap.Error(why))
	})
}

// closeWithError closes the connection at once because of what its client did. It may be called
// concurrently.
func (c *connection) closeWithError(why error) {
	c.closedByUs.Store(true)
	c.pingTimedOut.Store(why == errKeepaliveTimeout) //nolint:errorlint // never wrapped
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

// reportHandshakeTimeout reports a connection whose client sent no SETTINGS in time.
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

// postCommand queues commands for the next batch.
func (c *connection) postCommand(cmds commands) {
	if cmds&commandDrainStop != 0 {
		c.activity.drainAt.Store(int64(c.Handler.Clock.Elapsed()))
	}
	c.mailbox.post(func() { c.mailbox.commands |= cmds })
}

// postCompletion queues a completion for the next batch.
func (c *connection) postCompletion(done completion) {
	c.mailbox.post(func() { c.mailbox.completions = append(c.mailbox.completions, done) })
}

// peer returns the client's address and identity for the context of a call.
func (c *connection) peer() *peer.Peer {
	return &peer.Peer{Addr: c.raw.RemoteAddr(), LocalAddr: c.raw.LocalAddr(), AuthInfo: c.info}
}

// updateBufferedLocked updates the bytes that the connection buffers, at the end of each batch.
func (c *connection) updateBufferedLocked() {
	c.shared.buffered.set(&c.buffered, int64(c.h2.Buffered()+c.unfed+c.delayedBytes+c.storeBytes))
}

// checkActivity closes a connection whose client took too long, and queues commands that are due.
func (c *connection) checkActivity(now time.Duration) {
	switch cmds, expired, err := c.activity.check(now, &c.Limits); {
	case err != nil:
		c.closeWithError(err)
	case expired:
		c.close()
	case cmds != 0:
		c.postCommand(cmds)
	}
}
