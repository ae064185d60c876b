package builtin

import (
	"time"

	"github.com/sluice-ratelimit/sluice/server/access"
)

// serve is the goroutine of the connection. It waits in read for most of its life, so what lies below
// that on its stack is small: a stack is doubled, and a collection may halve it.
func (c *connection) serve() {
	if r := c.begin(); r != nil {
		c.read(r)
	}
	c.leave()
}

// begin begins the connection. It returns nil if that fails.
func (c *connection) begin() *reader {
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
	c.turnMu.Lock()
	c.conn, c.lessee = conn, lessee
	c.turnMu.Unlock()
	return newReader(conn, c.raw)
}

// leave ends the connection.
func (c *connection) leave() {
	c.turnMu.Lock()
	how, calls := c.howLocked(), (c.h2.Last()+1)/2
	c.ending, c.closed = true, true
	for c.cancelLocked() != nil { // each call that is cancelled is so once, whatever comes of it
	}
	c.countStoredLocked() // it no longer waits for its client
	c.shared.parked.set(&c.parked, 0)
	c.turnMu.Unlock()
	c.close()
	if c.lessee != nil {
		c.lessee.Close(how, calls)
	}
}

// cancelLocked cancels the calls that were to be answered later.
func (c *connection) cancelLocked() (err error) {
	defer c.caughtLocked(&err)
	c.h2.Close()
	return nil
}

// read reads until the connection ends.
func (c *connection) read(r *reader) {
	defer r.release()
	for crowds := false; ; {
		in, err := r.read()
		if err != nil {
			c.neverBegan(err)
			if c.isEnding() {
				c.linger(r, nil)
			}
			return
		}
		came, crowded := len(in), false
		for more := true; more; {
			var used int
			var ok bool
			if used, more, ok = c.takeTurn(in, crowds || crowded); !ok {
				c.linger(r, in[used:])
				return
			}
			crowded = crowded || more
			in = in[used:]
		}
		crowds = crowded
		c.watched.partial(len(in) > 0, len(in) < came)
		if r.keep(in) && !crowded {
			park()
		}
	}
}

// mostLingering is how long a connection that has ended reads on, unless its client closes it.
const mostLingering = time.Second

// linger reads a little of what still comes, behind in: closing a socket with unread bytes would throw away what was
// written last. After a drain it may be resets of calls that were answered last.
func (c *connection) linger(r *reader, in []byte) {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(c.lingering)) //nolint:forbidigo // bounds a wait
	for n := 0; ; park() {
		if in != nil {
			r.keep(c.takeResets(in))
		}
		if n >= mostLingerBytes {
			return
		}
		var err error
		if in, err = r.read(); err != nil {
			return
		}
		n += len(in)
	}
}

// takeResets feeds h2 after the last turn of a drain, so that leases of calls that the client has reset come back. It returns
// the beginning of a frame that is left.
func (c *connection) takeResets(in []byte) (rest []byte) {
	c.turnMu.Lock()
	defer c.turnMu.Unlock()
	if !c.h2.Drained() {
		return nil
	}
	c.out = takeOutput() // which nobody reads
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
