package builtin

import (
	"net"
	"time"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/leases"
)

// serve is the goroutine of the connection. It spends most of its life in read, so the stack above
// that must stay small: stacks grow by doubling, and the garbage collector shrinks them by half.
func (c *connection) serve() {
	if r := c.handshake(); r != nil {
		c.readLoop(r)
	}
	c.cleanup()
}

// handshake performs the TLS handshake, if there is TLS. It returns nil if that fails.
func (c *connection) handshake() *reader {
	// The deadline is removed when the client's SETTINGS are received.
	_ = c.raw.SetDeadline(time.Now().Add(c.Limits.ConnectionTimeout)) //nolint:forbidigo // of a socket
	conn, info, err := c.Creds.ServerHandshake(c.raw)
	if err != nil {
		return nil // the credentials have logged the error
	}
	if c.bounded != nil {
		c.bounded.EndHandshake() // from now on, the tokens are for calls
	}
	c.info = info
	c.client = access.ClientFromAuthInfo(info)
	lessee := c.Handler.Service.Connect(clientName(c.raw.RemoteAddr()))
	lessee.Addr = c.raw.RemoteAddr()
	c.mu.Lock()
	c.conn = conn
	c.leaseConn = lessee
	c.mu.Unlock()
	return newReader(conn, c.raw)
}

// cleanup closes the connection and cancels its calls.
func (c *connection) cleanup() {
	c.mu.Lock()
	ending := c.endingLocked()
	calls := (c.h2.LastStream() + 1) / 2
	c.ending = true
	c.readerDone = true
	for c.cancelCallsLocked() != nil { // after a panic, it continues with the other calls
	}
	c.publishStoreBytesLocked() // its calls no longer count
	c.shared.buffered.set(&c.buffered, 0)
	c.mu.Unlock()
	c.close()
	if c.leaseConn != nil {
		c.leaseConn.Close(ending, calls)
	}
}

func (c *connection) cancelCallsLocked() (err error) {
	defer c.recoverPanicLocked(&err)
	c.h2.Close()
	return nil
}

// readLoop reads and processes input until the connection ends.
func (c *connection) readLoop(r *reader) {
	defer r.releaseBuffer()
	for needsToken := false; ; {
		in, err := r.read()
		if err != nil {
			c.reportHandshakeTimeout(err)
			if c.isEnding() {
				c.linger(r, nil)
			}
			return
		}
		received := len(in)
		unfinished := false
		for more := true; more; {
			var used int
			var ok bool
			if used, more, ok = c.processInput(in, needsToken || unfinished); !ok {
				c.linger(r, in[used:])
				return
			}
			unfinished = unfinished || more
			in = in[used:]
		}
		needsToken = unfinished
		c.activity.noteIncompleteFrame(len(in) > 0, len(in) < received)
		if r.keepRest(in) && !unfinished {
			cpu.Yield()
		}
	}
}

// defaultLingerTime is how long a connection that has ended still reads, unless its client closes
// it.
const defaultLingerTime = time.Second

// maxLingerBytes is how many bytes linger discards.
const maxLingerBytes = 256 << 10

// linger discards input that arrives after the end, following in: closing a socket with unread
// bytes would discard the last output, too. After a drain, the input can contain resets of the last
// calls.
func (c *connection) linger(r *reader, in []byte) {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(c.lingerTime)) //nolint:forbidigo // bounds a wait
	for n := 0; ; cpu.Yield() {
		if in != nil {
			r.keepRest(c.processResets(in))
		}
		if n >= maxLingerBytes {
			return
		}
		var err error
		if in, err = r.read(); err != nil {
			return
		}
		n += len(in)
	}
}

// processResets feeds h2 after the last batch of a drain, so that leases of calls that the client
// resets are returned. It returns the incomplete frame at the end of in.
func (c *connection) processResets(in []byte) (rest []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.h2.Drained() {
		return nil
	}
	c.out = getOutput() // is discarded
	defer func() {
		c.out.release()
		c.out = nil
	}()
	for more := true; more; {
		used, again, err := c.feedLocked(in, c.Handler.Clock.Elapsed())
		if err != nil {
			return nil
		}
		in = in[used:]
		more = again
	}
	return in
}

// maxCloseDelay is the longest time between the last reply and the close of a connection that its
// client closes after a fixed number of calls.
const maxCloseDelay = 250 * time.Millisecond

// clientName returns a name of the client: all connections from one IP address are taken for those
// of one Envoy, and so are all connections of Unix sockets.
func clientName(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().String()
	}
	return addr.Network()
}

// endingLocked returns why the connection, which is closed, has ended. A client that sent a GOAWAY is
// another program than Envoy, and ended the connection gracefully.
func (c *connection) endingLocked() leases.CloseReason {
	switch {
	case c.pingTimedOut.Load():
		return leases.Unresponsive
	case c.ending, c.closedByUs.Load(), c.h2.Draining(), c.h2.GotGoAway():
		return leases.Graceful
	case c.Handler.Clock.Elapsed()-time.Duration(c.activity.lastCallAt.Load()) <= maxCloseDelay:
		return leases.AfterReply
	}
	return leases.Abrupt
}
