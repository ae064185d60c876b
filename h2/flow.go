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

// turn says whether a large request may be sent.
type turn byte

const (
	turnNotAsked turn = iota
	turnWaits
	turnHas
)

// receiving is what a connection has received and may receive.
type receiving struct {
	// aware says that the client has acknowledged our SETTINGS. Until it knows of them it may send
	// as much on each stream as HTTP/2 has by default, but on all of them no more than that either.
	aware   bool
	initial int64 // the window of a new stream
	window  int64 // the connection's
	used    int64 // what came since a WINDOW_UPDATE

	// parked is the memory of requests and headers that are not whole.
	parked  int
	turns   int       // how many streams have their turn
	waiting []*stream // for theirs
}

func newReceiving() receiving { return receiving{initial: defaultWindow, window: ourWindow} }

// Parked returns the bytes that the connection holds of requests and replies on their way.
func (c *Conn) Parked() int { return c.receive.parked + c.send.waitingBytes }

// receiveBytes counts the payload of a DATA frame, whatever becomes of it.
func (c *Conn) receiveBytes(n int) error {
	r := &c.receive
	r.window -= int64(n)
	// A buffer may be as large again as what is in it. Only a client that never acknowledges our
	// SETTINGS holds so much.
	if r.window < 0 || !r.aware && r.parked > 2*defaultWindow {
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

// becomeAware is called when the client has acknowledged our SETTINGS: streams' windows are smaller
// now (6.9.2).
func (c *Conn) becomeAware() {
	r := &c.receive
	r.aware = true
	r.initial = firstWindow
	c.newest.receiveWindow -= defaultWindow - firstWindow
	for _, s := range c.sorted() {
		s.receiveWindow -= defaultWindow - firstWindow
		if s.body != nil && s.state == streamOpen && (s.talk == nil || s.talk.wants) {
			c.credit(s)
		}
	}
}

// sorted returns the streams that last, in the order of their numbers: what a connection appends must
// not depend on a map's order.
func (c *Conn) sorted() []*stream {
	all := make([]*stream, 0, len(c.streams))
	for _, s := range c.streams {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *stream) int { return int(a.id) - int(b.id) })
	return all
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

// sending is what a connection may send.
type sending struct {
	initial int64 // the window of a new stream
	window  int64 // the connection's

	waiting      []*stream // replies that wait for a window, the oldest first
	waitingBytes int       // the memory of these
}

func newSending() sending { return sending{initial: defaultWindow, window: defaultWindow} }

// mostWaiting is how many bytes of replies may wait for a window. Beyond it, calls are refused before
// they are decided. A client has to close its window for that, or not read.
const mostWaiting = 256 << 10

// receiveWindowUpdate lets replies go on (6.9).
func (c *Conn) receiveWindowUpdate(f *frame) error {
	if len(f.payload) != 4 {
		return &ConnError{CodeFrameSize, "a WINDOW_UPDATE that has not 4 bytes"}
	}
	n := int64(uint32(f.payload[0])<<24|uint32(f.payload[1])<<16|uint32(f.payload[2])<<8|uint32(f.payload[3])) & mostWindow
	if f.stream == 0 {
		if n == 0 {
			return &ConnError{CodeProtocol, "a WINDOW_UPDATE of nothing"}
		}
		if c.send.window += n; c.send.window > mostWindow {
			return &ConnError{CodeFlowControl, "a connection's window of more than 2^31-1"}
		}
		c.sendWaiting()
		return nil
	}
	if c.idle(f.stream) {
		return &ConnError{CodeProtocol, "WINDOW_UPDATE on a stream that has not begun"}
	}
	s := c.find(f.stream)
	switch {
	case s == nil: // 5.1: it was on its way
	case n == 0:
		c.resetFault(s.id, CodeProtocol)
	case s.sendWindow+n > mostWindow:
		c.resetFault(s.id, CodeFlowControl)
	default:
		s.sendWindow += n
		c.sendWaiting()
	}
	return nil
}

// changeInitial changes the window of all streams (6.9.2). They may become negative.
func (c *Conn) changeInitial(to int64) error {
	by := to - c.send.initial
	c.send.initial = to
	c.newest.sendWindow += by
	most := c.newest.sendWindow
	for _, s := range c.streams {
		s.sendWindow += by
		most = max(most, s.sendWindow)
	}
	if most > mostWindow {
		return &ConnError{CodeFlowControl, "a setting that makes a stream's window more than 2^31-1"}
	}
	return nil
}
