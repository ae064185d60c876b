package h2

import "slices"

// Windows of requests (5.2, 6.9). A connection's window is open as fast as its frames are read; what
// bounds memory are the streams' windows. A client may send firstWindow of each request, and the
// large requests of a connection take turns for the rest, turnsAtOnce at a time. Otherwise a
// thousand calls with 600 KB each, which one end client of an Envoy can cause, would all be held in
// part. A request that waits for its turn is not answered with an error, which would let the end
// client pass: it waits, at most as long as a request may take.
const (
	streamWindow  = 4 << 10
	maxSlots      = 4
	defaultWindow = 1<<16 - 1 // before SETTINGS say otherwise (6.9.2)
	connWindow    = 1 << 20   // the connection's
	maxWindow     = 1<<31 - 1 // 6.9.1
)

// maxPadding is what a frame's padding takes of a window, with its length (6.1).
const maxPadding = 256

// Buffered returns the bytes that the connection holds of requests and replies on their way.
func (c *Conn) Buffered() int { return c.receive.buffered + c.send.queuedBytes }

// receiveFlowControlled counts the payload of a DATA frame, whatever becomes of it.
func (c *Conn) receiveFlowControlled(n int) error {
	r := &c.receive
	r.window -= int64(n)
	// A client that does not know of our SETTINGS may send defaultWindow. One that does may send more before
	// its acknowledgement: twice as much is allowed.
	if r.window < 0 || !r.settingsAcked && r.bodyBytes+n > 2*defaultWindow {
		return &ConnError{CodeFlowControl, "more DATA than the connection's window allows"} // 6.9.1
	}
	r.sinceUpdate += int64(n)
	// A client counts our updates, so there is one for each half window.
	if r.sinceUpdate >= connWindow/2 {
		c.out = appendWindowUpdate(c.out, 0, uint32(r.sinceUpdate)) //nolint:gosec // at most ourWindow
		r.window += r.sinceUpdate
		r.sinceUpdate = 0
	}
	return nil
}

// extendWindow lets the client send what is missing of a message, or has it wait for its turn.
func (c *Conn) extendWindow(s *stream) {
	missing := int64(s.missingBytes())
	want := missing + maxPadding
	if want <= s.receiveWindow {
		return
	}
	if s.streaming != nil {
		want = max(want, streamWindow) // other messages follow
	}
	if len(s.body)+int(missing) > streamWindow && s.slot != slotAcquired {
		if s.slot == slotNone {
			s.slot = slotWaiting
			c.receive.slotQueue = append(c.receive.slotQueue, s)
			c.grantSlots()
		}
		return
	}
	c.out = appendWindowUpdate(c.out, s.id, uint32(want-s.receiveWindow)) //nolint:gosec // a message is smaller
	s.receiveWindow = want
}

// grantSlots gives turns to those that wait, as long as there are any.
func (c *Conn) grantSlots() {
	r := &c.receive
	for r.usedSlots < maxSlots && len(r.slotQueue) > 0 {
		s := r.slotQueue[0]
		r.slotQueue = slices.Delete(r.slotQueue, 0, 1)
		r.usedSlots++
		s.slot = slotAcquired
		c.extendWindow(s)
	}
}

// releaseSlot gives back the turn of a stream that ends.
func (c *Conn) releaseSlot(s *stream) {
	r := &c.receive
	switch s.slot {
	case slotNone:
		return
	case slotWaiting:
		r.slotQueue = slices.DeleteFunc(r.slotQueue, func(w *stream) bool { return w == s })
	case slotAcquired:
		r.usedSlots--
	}
	s.slot = slotNone
	c.grantSlots()
}

// maxQueuedBytes is how many bytes of replies may wait for a window. Beyond it, calls are refused before
// they are decided. A client has to close its window for that, or not read.
const maxQueuedBytes = 256 << 10

// dequeueReply forgets what a stream has sent, or will not send.
func (c *Conn) dequeueReply(s *stream) {
	c.send.queuedBytes -= cap(s.unsent)
	if s.streaming != nil {
		c.send.queuedBytes -= cap(s.streaming.trailers)
	}
	s.unsent, s.sent = nil, 0
	c.send.queue = slices.DeleteFunc(c.send.queue, func(w *stream) bool { return w == s })
}
