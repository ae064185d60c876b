package h2

import (
	"maps"
	"slices"
	"sync"
)

// find returns an open stream, or nil.
func (c *Conn) find(id uint32) *stream {
	if c.newest.id == id {
		return &c.newest
	}
	return c.streams[id]
}

// Open returns how many calls are open.
func (c *Conn) Open() int {
	n := len(c.streams)
	if c.newest.id != 0 {
		n++
	}
	return n
}

// Last returns the number of the newest stream.
func (c *Conn) Last() uint32 { return c.last }

// settle moves a stream to those that last. Pointers to it may be kept from then on.
func (c *Conn) settle(s *stream) *stream {
	if s != &c.newest {
		return s
	}
	if c.streams == nil {
		c.streams = make(map[uint32]*stream)
	}
	moved := streams.Get().(*stream) //nolint:forcetypeassert // it holds nothing else
	*moved = c.newest
	c.newest = stream{}
	c.streams[moved.id] = moved
	c.mostStreams = max(c.mostStreams, len(c.streams))
	if moved.kept != nil {
		c.receive.parked += moved.kept.bytes
	}
	return moved
}

// streams are for use again, by any connection: one that opens all it may and goes away, again and
// again, would otherwise leave garbage faster than it is collected.
var streams = sync.Pool{New: func() any { return new(stream) }}

// free forgets what a stream held: a body that each of many streams kept would be memory that nobody
// counts.
func (s *stream) free() {
	*s = stream{}
	streams.Put(s)
}

// end forgets a stream. clientEnded says that nothing more of it may come.
func (c *Conn) end(s *stream, clientEnded bool) {
	c.ended.add(s.id, clientEnded)
	if s == &c.newest {
		c.newest = stream{}
		return
	}
	delete(c.streams, s.id)
	c.dropBody(s)
	if s.kept != nil {
		c.receive.parked -= s.kept.bytes
	}
	c.leaveTurns(s)
	if s.waiting != nil {
		c.leaveWaiting(s)
	}
	s.free()
}

// reset ends a stream by a frame of ours.
func (c *Conn) reset(s *stream, code Code) {
	c.out = appendRSTStream(c.out, s.id, code)
	c.cancel(s)
	c.end(s, s.state != streamOpen)
}

// resetFault resets a stream, which may have ended or not begun, because of what its client did. If that
// was a frame that is an odd act anyway, such as a PRIORITY of a wrong length, it is two: the frame, and
// the reset that it makes us send.
func (c *Conn) resetFault(id uint32, code Code) {
	c.odd.left -= 1 + oddActsPerCall // it must not gain by the call's own credit
	if s := c.find(id); s != nil {
		c.reset(s, code)
		return
	}
	c.out = appendRSTStream(c.out, id, code)
}

// receiveReset takes in the end of a call that nobody waits for any more (6.4).
func (c *Conn) receiveReset(f *frame) error {
	switch {
	case len(f.payload) != 4:
		return &ConnError{CodeFrameSize, "an RST_STREAM that has not 4 bytes"}
	case c.idle(f.stream):
		return &ConnError{CodeProtocol, "RST_STREAM on a stream that has not begun"}
	}
	// A reset of a stream that has ended is no odd act, since the answer was on its way. But there is
	// at most one for each stream.
	if c.odd.resets++; c.odd.resets > c.odd.begun {
		c.odd.left--
	}
	s := c.find(f.stream)
	if s == nil {
		c.handler.Reset(f.stream)
		return nil
	}
	c.cancel(s)
	c.end(s, true)
	return nil
}

// cancel tells the handler that nobody waits for an answer any more, which may be on its way.
func (c *Conn) cancel(s *stream) {
	if s.later != nil {
		s.later.Cancel()
		return
	}
	c.handler.Reset(s.id)
}

// idle reports whether a stream has not begun. Streams with even numbers are ours, and never do.
func (c *Conn) idle(id uint32) bool { return id > c.last || id&1 == 0 }

const clientEndedBit = 1 << 31

func (e *endedStreams) add(id uint32, client bool) {
	if client {
		id |= clientEndedBit
	} else {
		e.late++
	}
	e.ring[e.next%len(e.ring)] = id
	e.next++
}

// find returns whether a stream is remembered, and whether the client had ended it.
func (e *endedStreams) find(id uint32) (found, client bool) {
	for _, r := range e.ring {
		if r&^clientEndedBit == id {
			return true, r&clientEndedBit != 0
		}
	}
	return false, false
}

// sorted returns the streams that last, in the order of their numbers: what a connection appends must
// not depend on a map's order.
func (c *Conn) sorted() []*stream {
	return slices.SortedFunc(maps.Values(c.streams), func(a, b *stream) int { return int(a.id) - int(b.id) })
}
