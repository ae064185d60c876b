package h2

import "slices"

// Windows of requests (5.2, 6.9). The window of the connection is restored as fast as frames are
// read; the windows of streams bound the memory. A client may send streamWindow bytes of each
// request. Large requests need a slot for the rest, of which a connection has maxSlots. Otherwise a
// thousand calls of 600 KB, which a single end client of an Envoy can cause, would all be buffered
// in part. A request without a slot gets no error, which would let the end client pass: it waits,
// at most for maxRequestTime.
const (
	streamWindow  = 4 << 10
	maxSlots      = 4
	defaultWindow = 1<<16 - 1 // the initial value of HTTP/2 (6.9.2)
	connWindow    = 1 << 20   // window of the connection
	maxWindow     = 1<<31 - 1 // 6.9.1
)

// maxPadding is the size of a frame's padding, including its length (6.1).
const maxPadding = 256

// Buffered returns the bytes of incomplete requests and unsent replies.
func (c *Conn) Buffered() int { return c.receive.buffered + c.send.queuedBytes }

// receiveFlowControlled counts the payload of a DATA frame, even if it will be dropped.
func (c *Conn) receiveFlowControlled(n int) error {
	r := &c.receive
	r.window -= int64(n)
	// Before a client knows our SETTINGS it may send defaultWindow bytes. When it knows them, but
	// has not acknowledged them yet, it may send more: twice as much is allowed.
	if r.window < 0 || !r.settingsAcked && r.bodyBytes+n > 2*defaultWindow {
		return &ConnError{CodeFlowControl, "DATA exceeds the connection's window"} // 6.9.1
	}
	r.sinceUpdate += int64(n)
	// Clients limit the number of WINDOW_UPDATEs, so there is one per half window.
	if r.sinceUpdate >= connWindow/2 {
		c.out = appendWindowUpdate(c.out, 0, uint32(r.sinceUpdate)) //nolint:gosec // at most connWindow
		r.window += r.sinceUpdate
		r.sinceUpdate = 0
	}
	return nil
}

// extendWindow lets the client send the rest of a message, or queues the stream for a slot.
func (c *Conn) extendWindow(s *stream) {
	missing := int64(s.missingBytes())
	want := missing + maxPadding
	if want <= s.receiveWindow {
		return
	}
	if s.streaming != nil {
		want = max(want, streamWindow) // more messages follow
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

// grantSlots grants free slots to waiting streams.
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

// releaseSlot releases the slot of a stream, or its place in the queue.
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

// maxQueuedBytes limits the replies that wait for a window. Beyond it, calls are refused before
// they are decided. Only a client that closes its window, or does not read, reaches it.
const maxQueuedBytes = 256 << 10

// dequeueReply removes the reply of a stream from the queue.
func (c *Conn) dequeueReply(s *stream) {
	c.send.queuedBytes -= cap(s.unsent)
	if s.streaming != nil {
		c.send.queuedBytes -= cap(s.streaming.trailers)
	}
	s.unsent = nil
	s.sent = 0
	c.send.queue = slices.DeleteFunc(c.send.queue, func(w *stream) bool { return w == s })
}
