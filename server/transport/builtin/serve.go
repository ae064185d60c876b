package builtin

import (
	"time"

	"github.com/sluice-ratelimit/sluice/server/access"
)

// serve is the goroutine of the connection. It waits in read for most of its life, so what lies below
// that on its stack is small: a stack is doubled, and a collection may halve it.
func (c *connection) serve() {
	if r := c.handshake(); r != nil {
		c.readLoop(r)
	}
	c.cleanup()
}

// handshake begins the connection. It returns nil if that fails.
func (c *connection) handshake() *reader {
	// Until the client's SETTINGS have come.
	_ = c.raw.SetDeadline(time.Now().Add(c.Limits.ConnectionTimeout)) //nolint:forbidigo // connections begin when they like
	conn, info, err := c.Creds.ServerHandshake(c.raw)
	if err != nil {
		return nil // the credentials have logged it
	}
	c.info = info
	c.client = access.ClientIn(info)
	lessee := c.Handler.Service.Connect(clientName(c.raw.RemoteAddr()))
	lessee.Addr = c.raw.RemoteAddr()
	c.mu.Lock()
	c.conn, c.leaseConn = conn, lessee
	c.mu.Unlock()
	return newReader(conn, c.raw)
}

// cleanup ends the connection.
func (c *connection) cleanup() {
	c.mu.Lock()
	how, calls := c.endingLocked(), (c.h2.LastStream()+1)/2
	c.ending, c.readerDone = true, true
	for c.cancelCallsLocked() != nil { // each call that is cancelled is so once, whatever comes of it
	}
	c.publishStoreBytesLocked() // it no longer waits for its client
	c.shared.buffered.set(&c.buffered, 0)
	c.mu.Unlock()
	c.close()
	if c.leaseConn != nil {
		c.leaseConn.Close(how, calls)
	}
}

// cancelCallsLocked cancels the calls that were to be answered later.
func (c *connection) cancelCallsLocked() (err error) {
	defer c.recoverPanicLocked(&err)
	c.h2.Close()
	return nil
}

// readLoop reads until the connection ends.
func (c *connection) readLoop(r *reader) {
	defer r.releaseBuffer()
	for crowds := false; ; {
		in, err := r.read()
		if err != nil {
			c.reportHandshakeTimeout(err)
			if c.isEnding() {
				c.linger(r, nil)
			}
			return
		}
		came, crowded := len(in), false
		for more := true; more; {
			var used int
			var ok bool
			if used, more, ok = c.processInput(in, crowds || crowded); !ok {
				c.linger(r, in[used:])
				return
			}
			crowded = crowded || more
			in = in[used:]
		}
		crowds = crowded
		c.activity.noteIncompleteFrame(len(in) > 0, len(in) < came)
		if r.keepRest(in) && !crowded {
			yield()
		}
	}
}

// defaultLingerTime is how long a connection that has ended reads on, unless its client closes it.
const defaultLingerTime = time.Second

// linger reads a little of what still comes, behind in: closing a socket with unread bytes would throw away what was
// written last. After a drain it may be resets of calls that were answered last.
func (c *connection) linger(r *reader, in []byte) {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(c.lingerTime)) //nolint:forbidigo // bounds a wait
	for n := 0; ; yield() {
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

// processResets feeds h2 after the last turn of a drain, so that leases of calls that the client has reset come back. It returns
// the beginning of a frame that is left.
func (c *connection) processResets(in []byte) (rest []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.h2.Drained() {
		return nil
	}
	c.out = getOutput() // which nobody reads
	defer func() {
		c.out.release()
		c.out = nil
	}()
	for more := true; more; {
		used, again, err := c.feedLocked(in, c.Handler.Clock.Elapsed())
		if err != nil {
			return nil
		}
		in, more = in[used:], again
	}
	return in
}
