package h2

import "slices"

// Windows of requests (5.2, 6.9). A connection's window is open as fast as its frames are read; what
// bounds memory are the streams' windows. A client may send firstWindow of each request, and the
// large requests of a connection take turns for the rest, turnsAtOnce at a time. Otherwise a
// thousand calls with 600 KB each, which one end client of an Envoy can cause, would all be held in
// part. A request that waits for its turn is not answered with an error, which would let the end
// client pass: it waits, at most as long as a request may take.
const (
	firstWindow   = 4 << 10
	turnsAtOnce   = 4
	defaultWindow = 1<<16 - 1 // before SETTINGS say otherwise (6.9.2)
	ourWindow     = 1 << 20   // the connection's
	mostWindow    = 1<<31 - 1 // 6.9.1
)

// mostPadding is what a frame's padding takes of a window, with its length (6.1).
const mostPadding = 256

// Parked returns the bytes that the connection holds of requests and replies on their way.
func (c *Conn) Parked() int { return c.receive.parked + c.send.waitingBytes }

// receiveBytes counts the payload of a DATA frame, whatever becomes of it.
func (c *Conn) receiveBytes(n int) error {
	r := &c.receive
	r.window -= int64(n)
	// A client that does not know of our SETTINGS may send defaultWindow. One that does may send more before
	// its acknowledgement: twice as much is allowed.
	if r.window < 0 || !r.aware && r.unfinished+n > 2*defaultWindow {
		return &ConnError{CodeFlowControl, "more DATA than the connection's window allows"} // 6.9.1
	}
	r.used += int64(n)
	// A client counts our updates, so there is one for each half window.
	if r.used >= ourWindow/2 {
		c.out = appendWindowUpdate(c.out, 0, uint32(r.used)) //nolint:gosec // at most ourWindow
		r.window += r.used
		r.used = 0
	}
	return nil
}

// credit lets the client send what is missing of a message, or has it wait for its turn.
func (c *Conn) credit(s *stream) {
	missing := int64(s.missing())
	want := missing + mostPadding
	if want <= s.receiveWindow {
		return
	}
	if s.talk != nil {
		want = max(want, firstWindow) // other messages follow
	}
	if len(s.body)+int(missing) > firstWindow && s.turn != turnHas {
		if s.turn == turnNotAsked {
			s.turn = turnWaits
			c.receive.waiting = append(c.receive.waiting, s)
			c.giveTurns()
		}
		return
	}
	c.out = appendWindowUpdate(c.out, s.id, uint32(want-s.receiveWindow)) //nolint:gosec // a message is smaller
	s.receiveWindow = want
}

// giveTurns gives turns to those that wait, as long as there are any.
func (c *Conn) giveTurns() {
	r := &c.receive
	for r.turns < turnsAtOnce && len(r.waiting) > 0 {
		s := r.waiting[0]
		r.waiting = slices.Delete(r.waiting, 0, 1)
		r.turns++
		s.turn = turnHas
		c.credit(s)
	}
}

// leaveTurns gives back the turn of a stream that ends.
func (c *Conn) leaveTurns(s *stream) {
	r := &c.receive
	switch s.turn {
	case turnNotAsked:
		return
	case turnWaits:
		r.waiting = slices.DeleteFunc(r.waiting, func(w *stream) bool { return w == s })
	case turnHas:
		r.turns--
	}
	s.turn = turnNotAsked
	c.giveTurns()
}

// mostWaiting is how many bytes of replies may wait for a window. Beyond it, calls are refused before
// they are decided. A client has to close its window for that, or not read.
const mostWaiting = 256 << 10

// leaveWaiting forgets what a stream has sent, or will not send.
func (c *Conn) leaveWaiting(s *stream) {
	c.send.waitingBytes -= cap(s.waiting)
	if s.talk != nil {
		c.send.waitingBytes -= cap(s.talk.trailers)
	}
	s.waiting, s.sent = nil, 0
	c.send.waiting = slices.DeleteFunc(c.send.waiting, func(w *stream) bool { return w == s })
}
