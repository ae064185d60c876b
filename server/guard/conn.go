package guard

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Resets so many in one read make the reader yield so many times. Each call that a
// client takes back has a goroutine by then, which only finds that it is not
// needed. A reader that went on would always have as many of them as streams are
// allowed, and the calls of all other connections would wait behind them. Yielding
// once is not enough: the scheduler runs who yielded now and then even while others
// wait.
const (
	manyResets = 8
	yields     = 2
)

// mostUnaware is how many streams a client may open in vain before it has the
// server's SETTINGS.
const mostUnaware = 10_000

// conn is a guarded connection. One goroutine reads and others write, as in any
// [net.Conn].
type conn struct {
	net.Conn
	guard *Guard

	// writing is held while frames are written, so that those of grpc-go and of
	// this package do not mix. It is taken before mu.
	writing sync.Mutex
	scratch []byte

	// holds is parked.bytes, for [Guard.shed].
	holds atomic.Int64
	// hasty says that the last read brought many resets. It is the reader's alone.
	hasty bool

	// mu guards what follows.
	mu      sync.Mutex
	in, out frames
	odd     budget
	parked  parked
	windows windows
	streams streams
	// opened, resets and ends count the client's header blocks, its RST_STREAMs and
	// its ends of streams: it cannot honestly end more than it opened.
	opened, resets, ends uint64
	// aware says that the client has acknowledged the server's SETTINGS, and so knows
	// how many streams it may open. Those before, up to unaware of them, may be refused
	// without being odd acts, however late: an Envoy before 1.36 opens thousands if
	// calls are waiting when a connection begins.
	aware     bool
	before    uint32 // streams.begun when the client became aware
	unaware   int
	releasing bool  // a call of release has begun
	entered   bool  // in guard.conns
	ended     error // why it was closed, or nil
}

func (g *Guard) wrap(raw net.Conn, now time.Time) *conn {
	c := &conn{Conn: raw, guard: g, in: frames{skip: prefaceBytes}, odd: newBudget(now), unaware: mostUnaware}
	c.parked.maxList = g.options.HeaderListBytes
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

// received looks at what the client sent, and returns why it is too much, or nil.
func (c *conn) received(p []byte, now func() time.Time) error {
	c.mu.Lock()
	before := c.resets
	for rest, ok := c.in.next(p); ok; rest, ok = c.in.next(rest) {
		c.receivedFrameLocked(&c.in)
	}
	c.hasty = c.resets-before >= manyResets
	release := c.mayReleaseLocked()
	enter := c.parked.bytes > 0 && !c.entered
	c.entered = c.entered || enter
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
	if enter {
		c.guard.add(c)
	}
	if grown && c.guard.parked.Load() > c.guard.options.ParkedBytes {
		c.guard.shed()
	}
	if release {
		go c.release()
	}
	return nil
}

// earlyBuffers is how much more than their bytes requests may take in buffers while
// they are in their first windows. A client may also have sent a connection's first
// window, 64 KiB, before it learned of the streams'.
const earlyBuffers = 2

// excessLocked returns why to close the connection, or nil.
func (c *conn) excessLocked(now func() time.Time) error {
	switch open := c.ended == nil; {
	case open && c.odd.spent(now):
		return errOddActs
	case open && c.windows.missing > 0 && c.parked.early > earlyBuffers*(c.guard.options.MaxStreams*firstWindow+64<<10):
		return errWindow
	}
	return nil
}

func (c *conn) receivedFrameLocked(f *frames) {
	end := f.has(flagEndStream)
	switch f.kind() {
	case frameHeaders:
		c.opened++
		if c.streams.begin(f.stream()) {
			c.odd.give(oddActsPerCall)
		}
		if !f.has(flagEndHeaders) {
			c.parked.addBlock(f.length())
		}
	case frameContinuation:
		end = false
		if f.has(flagEndHeaders) {
			c.parked.endBlock()
			break
		}
		c.parked.addBlock(f.length())
		if f.length() < smallFrame {
			c.odd.spend(1)
		}
	case frameData:
		if end {
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
		end = false
		c.endStreamLocked(f.stream())
		// A client's resets are no odd acts: a service that stalls for a moment gets
		// one from Envoy for every call.
		if c.resets++; c.resets > c.opened {
			c.odd.spend(1)
		}
	default:
		if f.kind() == frameSettings && f.has(flagAck) && !c.aware {
			c.aware, c.before = true, c.streams.begun
		}
		end = false
		c.odd.spend(1)
	}
	if end {
		c.endStreamLocked(f.stream())
		if c.ends++; c.ends > c.opened {
			c.odd.spend(1)
		}
	}
}

// endStreamLocked forgets a stream whose request is whole, or does not matter any
// more.
func (c *conn) endStreamLocked(stream uint32) {
	c.streams.end(stream)
	c.parked.endStream(stream)
	c.windows.done(stream)
}

// settleLocked brings what others know of parked.bytes up to date, and returns by
// how much it grew.
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
		return min(n, len(p)), err
	}
	return len(p), nil
}

// sent looks at what the server writes, and returns it without the frames that
// have to wait: p itself if there are none.
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
			// A deadline that passed, or an answer before the request's end, is no fault
			// of the client. All else is: a stream too many, headers too large, a broken
			// frame. Then the call's own credit goes as well.
			switch code := f.code(); {
			case code == codeCancel || code == codeNo:
			case code == codeRefusedStream && c.unaware > 0 && (!c.aware || f.stream()>>1 < c.before):
				c.unaware--
			default:
				c.odd.spend(1 + oddActsPerCall)
			}
		case frameWindowUpdate:
			const whole = headerBytes + codeBytes
			// A frame whose beginning was written before cannot wait any more. A stream
			// that has ended would never give its place back.
			if at >= whole && f.code() > largeIncrement && f.stream() != 0 && c.streams.on(f.stream()) &&
				!c.windows.ask(f.stream(), f.code()) {
				c.scratch = append(c.scratch, p[kept:at-whole]...)
				kept = at
			}
			continue
		case frameSettings:
			// The first frame of all, so that it is whole. An ACK has no payload.
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

// mayReleaseLocked reports whether to call release, which nobody has begun yet: one
// that waits for a client that does not read is enough.
func (c *conn) mayReleaseLocked() bool {
	if c.releasing || !c.windows.ready() {
		return false
	}
	c.releasing = true
	return true
}

// release sends the updates whose turn has come. If the server is in the middle of
// a frame, the write that ends the frame calls it again.
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
	if !c.leave(why) {
		return
	}
	c.guard.options.Ended.Inc()
	c.guard.options.Logger.Warn("grpc connection closed; more within ten seconds are only counted",
		zap.Stringer("peer", c.RemoteAddr()), zap.Error(why))
	_ = c.Conn.Close() // grpc-go closes it too
}

// leave takes back what is counted for the connection, and reports whether this
// was the first time.
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

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.leave(net.ErrClosed)
	c.guard.remove(c)
	return c.Conn.Close()
}
