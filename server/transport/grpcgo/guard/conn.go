package guard

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// After manyResets resets in one read, the reader yields to other goroutines, yields times.
// Each call that a client resets has a goroutine by then, which has yet to find that nobody
// needs it. Without yielding, there would always be as many of them as streams are allowed,
// and the calls of all other connections would wait behind them. One yield is not enough: the
// scheduler sometimes runs a goroutine that has yielded before others that wait.
const (
	manyResets = 8
	yields     = 2
)

// mostUnaware is how many streams a client may open in vain before it has acknowledged the
// server's SETTINGS.
const mostUnaware = 10_000

// conn is a guarded connection. One goroutine reads and others write, as in any
// [net.Conn].
type conn struct {
	net.Conn
	guard *Guard
	raw   net.Conn // below TLS

	// writing is held while frames are written. Otherwise frames of this package could come
	// into the middle of grpc-go's. It is locked before mu.
	writing sync.Mutex
	scratch []byte
	goodbye bool // a GOAWAY is due

	// holds is parked.bytes, for [Guard.shed].
	holds atomic.Int64
	// hasty says that the last read brought many resets. Only the reader uses it.
	hasty bool

	// mu guards what follows. Guard.mu may be locked under it.
	mu      sync.Mutex
	in, out frames
	odd     budget
	parked  parked
	windows windows
	streams streams
	usage   usage
	// opened, resets and ends count the client's header blocks, its RST_STREAMs and its
	// ENDs of streams. An honest client never ends more than it opened.
	opened, resets, ends uint64
	// aware says that the client has acknowledged the server's SETTINGS, and so knows how many
	// streams it may open. grpc-go may reject streams begun before that, up to unaware of
	// them, without odd acts, however late it does: an Envoy older than 1.36 opens thousands if
	// so many calls wait when a connection begins.
	aware     bool
	before    uint32 // streams.begun when the client became aware
	unaware   int
	releasing bool  // a goroutine of release has begun and has not yet taken the lock
	entered   bool  // it was added to guard.conns
	ended     error // why the connection was closed, or nil
}

func (g *Guard) wrap(raw net.Conn, now time.Time) *conn {
	c := &conn{Conn: raw, guard: g, raw: raw, in: frames{skip: prefaceBytes}, odd: newBudget(now), unaware: mostUnaware}
	c.parked.maxList = g.options.HeaderListBytes
	c.usage.since = g.options.Elapsed()
	return c
}

// Read implements [net.Conn].
func (c *conn) Read(p []byte) (int, error) {
	if c.hasty {
		for range yields {
			runtime.Gosched()
		}
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		if err := c.received(p[:n], time.Now); err != nil { //nolint:forbidigo // asked for only when nothing is left
			return 0, err
		}
	}
	return n, err
}

// received inspects what the client sent. It returns why the connection is closed, or nil.
func (c *conn) received(p []byte, now func() time.Time) error {
	c.mu.Lock()
	before := c.resets
	for rest, ok := c.in.next(p); ok; rest, ok = c.in.next(rest) {
		c.receivedFrameLocked(&c.in)
	}
	c.hasty = c.resets-before >= manyResets
	release := c.mayReleaseLocked()
	if c.parked.bytes > 0 && !c.entered && c.ended == nil {
		// Under mu: a connection that is added after Close would stay for good.
		c.entered = true
		c.guard.add(c)
	}
	why := c.excessLocked(now)
	grown := c.settleLocked() > 0
	err := c.ended
	c.mu.Unlock()

	switch {
	case why != nil:
		c.end(why)
		return why
	case err != nil:
		return err
	}
	if grown && c.guard.full() {
		c.guard.shed()
	}
	if release {
		go c.release()
	}
	return nil
}

// earlyBuffers is how many times their bytes requests may take in buffers while they are in
// their first windows: a buffer may be half empty and more. A client may also have sent 64 KiB,
// a connection's first window, before it learned of the streams' smaller ones.
const earlyBuffers = 2

// excessLocked returns why to close the connection, or nil.
func (c *conn) excessLocked(now func() time.Time) error {
	switch {
	case c.odd.spent(now):
		return errOddActs
	case c.windows.missing > 0 && c.parked.early > earlyBuffers*(c.guard.options.MaxStreams*firstWindow+64<<10):
		return errWindow
	}
	return nil
}

func (c *conn) receivedFrameLocked(f *frames) {
	end := false // flagEndStream means nothing in other frames
	switch f.kind() {
	case frameHeaders:
		end = f.has(flagEndStream)
		c.opened++
		if c.streams.begin(f.stream()) {
			c.odd.give(oddActsPerCall)
			c.usage.begin(f.stream(), c.guard.options.Elapsed())
		}
		if !f.has(flagEndHeaders) {
			c.parked.addBlock(f.length())
		}
	case frameContinuation:
		if f.has(flagEndHeaders) {
			c.parked.endBlock()
			break
		}
		c.parked.addBlock(f.length())
		if f.length() < smallFrame {
			c.odd.spend(1)
		}
	case frameData:
		if end = f.has(flagEndStream); end {
			break
		}
		// grpc-go throws away what comes for a stream that it has ended.
		if c.streams.on(f.stream()) && c.parked.addData(f.stream(), f.length()) && c.windows.missing > 0 {
			c.windows.ask(f.stream(), c.windows.missing)
		}
		if f.length() < smallFrame {
			c.odd.spend(1)
		}
	case frameRSTStream:
		c.endStreamLocked(f.stream())
		c.usage.end(f.stream(), c.guard.options.Elapsed())
		// A client's resets are no odd acts: a service that stalls for a moment gets
		// one from Envoy for every call.
		if c.resets++; c.resets > c.opened {
			c.odd.spend(1)
		}
	default:
		if f.kind() == frameSettings && f.has(flagAck) && !c.aware {
			c.aware, c.before = true, c.streams.begun
		}
		c.odd.spend(1)
	}
	if end {
		c.endStreamLocked(f.stream())
		if c.ends++; c.ends > c.opened {
			c.odd.spend(1)
		}
	}
}

// endStreamLocked forgets a stream of which nothing more is needed: its request is whole, or
// one side has ended it.
func (c *conn) endStreamLocked(stream uint32) {
	c.streams.end(stream)
	c.parked.endStream(stream)
	c.windows.done(stream)
}

// settleLocked adds the change of parked.bytes to holds and to the guard's sum, and returns
// the change.
func (c *conn) settleLocked() int64 {
	if c.ended != nil {
		return 0 // nothing is held any longer
	}
	grown := int64(c.parked.bytes) - c.holds.Load()
	if grown != 0 {
		c.holds.Add(grown)
		c.guard.parked.Add(grown)
	}
	return grown
}

// Write implements [net.Conn]. It may keep WINDOW_UPDATE frames for later.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	out := c.sent(p)
	if len(out) == 0 {
		return len(p), nil
	}
	if n, err := c.Conn.Write(out); err != nil {
		return n, err
	}
	if c.goodbye {
		c.writeGoodbye()
	}
	return len(p), nil
}

// sent inspects what the server writes, and returns it without the frames that have to wait.
// If there are none, that is p itself.
func (c *conn) sent(p []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := 0 // bytes of p that are in scratch or left out
	c.scratch = c.scratch[:0]
	for rest, ok := c.out.next(p); ok; rest, ok = c.out.next(rest) {
		f := &c.out
		at := len(p) - len(rest)
		switch f.kind() {
		case frameHeaders:
			if !f.has(flagEndStream) {
				continue
			}
			c.odd.give(oddActsPerAnswer)
		case frameRSTStream:
			// A deadline that passed and an answer before the request's end are no fault of
			// the client. All else is: a stream too many, headers too large, a broken frame.
			// Then the call's own credit is taken back. Otherwise each such call would gain
			// more than it costs, and the budget would never end.
			switch code := f.code(); {
			case code == codeCancel || code == codeNo:
			case code == codeRefusedStream && c.unaware > 0 && (!c.aware || f.stream()>>1 < c.before):
				c.unaware--
			default:
				c.odd.spend(1 + oddActsPerCall)
			}
		case frameWindowUpdate:
			const whole = headerBytes + codeBytes
			// A frame that began in an earlier write cannot wait any more. A stream that has
			// ended must not ask: it would keep its turn for good.
			if at >= whole && f.code() > largeIncrement && f.stream() != 0 && c.streams.on(f.stream()) &&
				!c.windows.ask(f.stream(), f.code()) {
				c.scratch = append(c.scratch, p[kept:at-whole]...)
				kept = at
			}
			continue
		case frameSettings:
			// grpc-go writes its SETTINGS first and at once. An ACK has no payload, so
			// that nothing is narrowed in it.
			if end := at + f.length(); end <= len(p) && c.windows.missing == 0 {
				c.scratch = append(c.scratch, p[kept:end]...)
				c.windows.missing = narrowFirstWindow(c.scratch[len(c.scratch)-f.length():])
				kept = end
			}
			continue
		default:
			continue
		}
		c.endStreamLocked(f.stream())
		c.usage.end(f.stream(), c.guard.options.Elapsed())
	}
	c.settleLocked()
	if c.mayReleaseLocked() {
		go c.release()
	}
	if kept == 0 {
		return p
	}
	c.scratch = append(c.scratch, p[kept:]...)
	return c.scratch
}

// mayReleaseLocked reports whether to start release in a goroutine. It does so for one at a
// time: otherwise many would wait for a client that does not read.
func (c *conn) mayReleaseLocked() bool {
	if c.releasing || !c.windows.ready() {
		return false
	}
	c.releasing = true
	return true
}

// release sends the updates whose turn has come. In the middle of a server's frame it sends
// nothing, as that would break the frame. The write that ends the frame starts it again.
func (c *conn) release() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	c.releasing = false
	var b []byte
	if c.out.between() {
		b = c.windows.appendReady(nil, c.parked.beginTurn)
	}
	c.mu.Unlock()
	if len(b) > 0 {
		_, _ = c.Conn.Write(b) // grpc-go meets the same error
	}
}

// end closes the connection, once.
func (c *conn) end(why error) {
	if c.leave(why) {
		c.shut(why)
	}
}

// shut closes the connection after leave.
func (c *conn) shut(why error) {
	c.guard.options.count(why).Inc()
	c.guard.options.Logger.Warn("grpc connection closed; more within ten seconds are only counted",
		zap.Stringer("peer", c.RemoteAddr()), zap.Error(why))
	c.closeRaw()
}

// closeRaw closes the connection for a caller that must not wait: TLS would wait until its last alert is sent. grpc-go
// closes the connection too.
func (c *conn) closeRaw() { _ = c.raw.Close() }

// leave marks the connection as ended and subtracts its bytes from the guard's sum. It reports
// whether this was the first call.
func (c *conn) leave(why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return false
	}
	c.ended = why
	c.guard.parked.Add(-c.holds.Swap(0))
	return true
}

// messageRead records that the handler of a stream has read a message of the given length with its prefix.
func (c *conn) messageRead(stream uint32, length int) {
	c.mu.Lock()
	c.parked.read(stream, length)
	c.windows.read(stream)
	c.odd.give(oddActsPerCall) // a message is as good as a call
	c.settleLocked()
	release := c.mayReleaseLocked()
	c.mu.Unlock()
	if release {
		go c.release()
	}
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.leave(net.ErrClosed)
	c.guard.remove(c)
	return c.Conn.Close()
}
