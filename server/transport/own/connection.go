package own

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/h2"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// connection is a connection of the own transport.
//
// Its goroutine reads, and takes turns: it feeds package h2 with what came, which answers most calls
// at once, and writes what came out with one call of the system. Who finishes something later, such
// as a held reply, leaves it in the inbox; whoever finds that empty starts a goroutine that takes
// turns until it is empty again. So nobody else waits for the client, and many answers leave with one
// write.
type connection struct {
	transport *Transport
	raw       net.Conn
	closing   sync.Once
	blaming   sync.Once
	info      credentials.AuthInfo // of the handshake
	client    *access.Client       // the other end, by its certificate

	// turn guards what follows, up to the inbox. It is held over writes, so only the reader and
	// the flusher may take it.
	turn sync.Mutex
	conn net.Conn // raw within TLS, if there is TLS; nil until the handshake is over
	h2   *h2.Conn
	out  *output        // of this turn
	x    *rateLimitCall // for calls of this turn that are answered in it
	// since is when the turn began, and at the last reading of the clock in it: the end of one call is
	// the beginning of the next.
	since, at time.Duration
	rest      int  // bytes that came and were not fed
	started   bool // our SETTINGS are out; see [transport.SpeaksHTTP1]
	begun     bool // the client's SETTINGS have come
	ending    bool // nothing more is answered
	closed    bool // nothing more is read, either

	// ticket says that it holds one of Transport.crowd. It is set in a turn, and whoever unsets it gives the
	// ticket back.
	ticket atomic.Bool

	inbox inbox

	// What the watch goes by, as times of the clock. The goroutine of the connection stores it.
	watched watched
	parked  atomic.Int64

	bridged atomic.Int64     // calls whose goroutines run
	watches transport.Places // of those on which only the server sends

	asked atomic.Int64 // requests that a store decides now
	later int          // bytes of calls that are answered later; guarded by turn
}

func newConnection(w *Transport, raw net.Conn) *connection {
	now := w.Handler.Clock.Elapsed()
	c := &connection{transport: w}
	c.raw = newSocket(raw, c.stalls, c.flows)
	c.h2 = w.h2.NewConn((*calls)(c), now)
	c.watched.begin(now, w.Limits.MaxConnectionAge)
	return c
}

// close ends the connection at once. It may be called by anybody.
func (c *connection) close() {
	c.closing.Do(func() { _ = c.raw.Close() }) // the reader meets the same error
}

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
	_ = c.raw.SetDeadline(time.Now().Add(c.transport.Limits.ConnectionTimeout)) //nolint:forbidigo // connections begin when they like
	conn, info, err := c.transport.Creds.ServerHandshake(c.raw)
	if err != nil {
		return nil // the credentials have logged it
	}
	c.info = info
	c.client = access.ClientIn(info)
	c.turn.Lock()
	c.conn = conn
	c.turn.Unlock()
	return newReader(conn, c.raw)
}

// leave ends the connection.
func (c *connection) leave() {
	c.turn.Lock()
	c.ending, c.closed = true, true
	for c.cancelLocked() != nil { // each call that is cancelled is so once, whatever comes of it
	}
	c.parks(0)
	c.turn.Unlock()
	c.close()
	c.transport.forget(c)
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
				c.linger(r)
			}
			return
		}
		came, crowded := len(in), false
		for more := true; more; {
			c.waitForStore()
			var used int
			var ok bool
			if used, more, ok = c.takeTurn(in, crowds || crowded); !ok {
				c.linger(r)
				return
			}
			crowded = crowded || more
			in = in[used:]
		}
		crowds = crowded
		c.watched.partial(len(in) > 0, len(in) < came)
		if r.keep(in) && !crowded {
			transport.Park()
		}
	}
}

// waitForStore waits while the store has as many requests of the connection as it may have streams:
// a client that resets its calls at once would otherwise have more. The store decides within
// milliseconds.
func (c *connection) waitForStore() {
	for c.asked.Load() >= int64(c.transport.Limits.MaxStreams) {
		time.Sleep(100 * time.Microsecond)
	}
}

func (c *connection) isEnding() bool {
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.ending
}

// takeTurn answers what came. It reports whether the connection goes on.
//
// A connection whose turn left something to do takes part in a crowd: it waits for a ticket before the
// next turn, of which there are as many as processors, and keeps it until it has parked. Otherwise fifty
// connections that send without a pause would always leave somebody to run, and the scheduler would
// look at the network every 10 ms.
func (c *connection) takeTurn(in []byte, crowds bool) (used int, more, ok bool) {
	if crowds {
		c.lockWithTicket()
	} else {
		c.turn.Lock()
	}
	used, more, ok = c.turnLocked(in)
	c.turn.Unlock()
	if crowds || more {
		transport.Park()
	}
	c.leaveCrowd()
	return used, more, ok
}

// lockWithTicket begins a turn that has a ticket. It holds none while it waits for the turn: a flusher may
// have that, whose client does not read.
func (c *connection) lockWithTicket() {
	for {
		c.transport.crowd <- struct{}{}
		if c.turn.TryLock() {
			c.ticket.Store(true)
			return
		}
		<-c.transport.crowd
		c.turn.Lock()
		c.turn.Unlock() //nolint:staticcheck // it waits for the end of the other's turn
	}
}

// enterCrowdLocked takes a ticket in a turn that has none.
func (c *connection) enterCrowdLocked() {
	if !c.ticket.Load() {
		c.transport.crowd <- struct{}{}
		c.ticket.Store(true)
	}
}

// leaveCrowd gives the ticket back, if there is one. Anybody may call it.
func (c *connection) leaveCrowd() {
	if c.ticket.Load() && c.ticket.Swap(false) {
		<-c.transport.crowd
	}
}

// stalls is called when a write has to wait for the client. It may be a turn's, which then goes on without
// a ticket, or one of TLS beside a turn.
func (c *connection) stalls() {
	c.leaveCrowd()
	c.transport.stalled.enter(c)
}

// flows is called at the end of that write.
func (c *connection) flows() { c.transport.stalled.leave(c) }

func (c *connection) turnLocked(in []byte) (used int, more, ok bool) {
	if c.ending {
		return 0, false, false
	}
	now := c.transport.Handler.Clock.Elapsed()
	c.since, c.at = now, now
	c.watched.heard(now)
	c.out = takeOutput()
	err := c.takeInboxLocked(now)
	if err == nil {
		err = c.greetLocked(in)
	}
	if err == nil && c.started {
		used, more, err = c.feedLocked(in, now)
	}
	c.rest = len(in) - used
	c.endTurnLocked(now, err)
	return used, more, c.writeLocked() && !c.ending
}

// greetLocked sends the first SETTINGS, once the client is known to speak HTTP/2.
func (c *connection) greetLocked(in []byte) error {
	if c.started {
		return nil
	}
	yes, undecided := transport.SpeaksHTTP1(in)
	if yes {
		return transport.ErrHTTP1
	}
	if !undecided {
		c.startLocked()
	}
	return nil
}

func (c *connection) startLocked() {
	if !c.started {
		c.started = true
		c.out.bytes = c.h2.Start(c.out.bytes)
	}
}

// feedLocked feeds h2.
func (c *connection) feedLocked(in []byte, now time.Duration) (used int, more bool, err error) {
	defer c.caughtLocked(&err)
	c.out.bytes, used, more, err = c.h2.Feed(c.out.bytes, in, now)
	return used, more, err
}

// caughtLocked is deferred by all that a turn does. A panic is a bug of ours, and costs the connection
// alone.
func (c *connection) caughtLocked(err *error) {
	if p := recover(); p != nil {
		c.transport.Handler.Panics.Caught(p)
		c.x = nil // its state is unknown
		*err = &h2.ConnError{Code: h2.CodeInternal, Reason: "internal error"}
	}
}

// endTurnLocked ends the connection if it has to.
func (c *connection) endTurnLocked(now time.Duration, err error) {
	if c.x != nil {
		c.x.release()
		c.x = nil
	}
	if !c.begun && c.h2.Begun() {
		c.begun = true
		_ = c.raw.SetDeadline(time.Time{})
	}
	c.watched.calls(now, c.h2.Last(), c.h2.Open())
	c.watched.block(c.h2.BlockSince())
	if !c.closed {
		c.parksLocked(0)
	}
	if e, ok := errors.AsType[*h2.ConnError](err); ok {
		c.out.bytes = c.h2.GoAway(c.out.bytes, e)
		c.ending = true
		c.blame(e)
	}
	if err == transport.ErrHTTP1 { //nolint:errorlint // it is greetLocked's own
		c.out.bytes = append(c.out.bytes, c.transport.Hint...)
		c.ending = true
		c.blame(err)
	}
	if c.h2.Drained() {
		c.ending = true
	}
}

// writeLocked writes what is to go out. It reports whether that went well.
func (c *connection) writeLocked() bool {
	out := c.out
	c.out = nil
	defer out.release()
	if len(out.bytes) == 0 {
		return true
	}
	c.watched.writing.Store(int64(c.transport.Handler.Clock.Elapsed()))
	_, err := c.conn.Write(out.bytes)
	c.watched.writing.Store(0)
	if c.h2.Draining() && c.watched.toldAt.Load() == 0 {
		c.watched.toldAt.Store(int64(c.transport.Handler.Clock.Elapsed()))
	}
	return err == nil
}

// linger reads a little of what still comes: closing a socket with unread bytes would throw away what
// was written last.
func (c *connection) linger(r *reader) {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(time.Second)) //nolint:forbidigo // bounds a wait
	for n := 0; n < transport.MostLingered; transport.Park() {
		in, err := r.read()
		if err != nil {
			return
		}
		n += len(in)
		r.keep(nil)
	}
}

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
