package builtin

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// Bounds of the memory of the calls that stores decide. A connection whose own calls take more than busyBytes
// stops reading at mostOfBusy, so that connections with few calls go on.
const (
	mostStored = mostParked / 2
	mostOfBusy = mostParked / 4
	busyBytes  = 64 << 10
)

// stored is the memory of the calls of all connections that stores decide. Closing a connection does not free it,
// since the store has the calls until it has decided them. So connections stop reading at a bound.
type stored struct {
	bytes atomic.Int64
	busy  queue
	other queue
}

// queueOf returns where a connection waits whose calls take the given number of bytes.
func (s *stored) queueOf(bytes int64) (q *queue, most int64) {
	if bytes > busyBytes {
		return &s.busy, mostOfBusy
	}
	return &s.other, mostStored
}

// full reports whether such a connection has to wait.
func (s *stored) full(bytes int64) bool {
	_, most := s.queueOf(bytes)
	return s.bytes.Load() >= most
}

// wake lets the first connection of each queue go on, if there is room. The connection calls it again at the end of
// its next turn: the others go on one after another.
func (s *stored) wake() {
	if s.bytes.Load() < mostOfBusy {
		s.busy.wake()
	}
	if s.bytes.Load() < mostStored {
		s.other.wake()
	}
}

// queue are connections that wait for room, in the order in which they began to.
type queue struct {
	length atomic.Int32
	mu     sync.Mutex
	conns  list.List
}

func (q *queue) enter(c *connection) *list.Element {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.length.Add(1)
	return q.conns.PushBack(c)
}

// leave removes a connection, unless wake has.
func (q *queue) leave(e *list.Element) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.conns.Remove(e)
	q.length.Store(int32(q.conns.Len())) //nolint:gosec // there are not so many connections
}

func (q *queue) wake() {
	if q.length.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if first := q.conns.Front(); first != nil {
		c, _ := q.conns.Remove(first).(*connection)
		q.length.Add(-1)
		wake(c.returned)
	}
}

// waitForStore waits while stores decide too many calls: as many of the connection as it may have streams, since
// a client that resets its calls at once would otherwise have more, or too many of all connections. A connection that
// is closed does not wait.
func (c *connection) waitForStore() {
	s := &c.shared.stored
	for {
		bytes := c.counted.Load()
		own := c.deciding.Load() >= int64(c.Limits.MaxStreams)
		if !own && !s.full(bytes) || c.shut.Load() {
			return
		}
		c.watched.waits.Store(true)
		if own {
			<-c.returned
			continue
		}
		q, _ := s.queueOf(bytes)
		place := q.enter(c)
		if s.full(bytes) {
			<-c.returned
		}
		q.leave(place)
	}
}

// storedLocked counts a call that a store decides.
func (x *rateLimitCall) storedLocked() {
	x.awaited = true
	x.size = x.Bytes()
	x.conn.stored += x.size
	x.conn.deciding.Add(1)
}

// returnedLocked counts a call that a store has decided.
func (x *rateLimitCall) returnedLocked() {
	x.conn.stored -= x.size
	x.conn.deciding.Add(-1)
	x.conn.fewer = true
}

// countStoredLocked is called at the end of each turn.
func (c *connection) countStoredLocked() {
	grown := int64(c.stored) - c.counted.Swap(int64(c.stored))
	if grown != 0 {
		c.shared.stored.bytes.Add(grown)
	}
	if c.fewer { // which is not what grown says: the calls may not have been counted
		c.fewer = false
		wake(c.returned)
	}
	c.shared.stored.wake()
}

// stallStored has others not wait for what the connection cannot take back, since its client does not read. The
// next turn counts it again.
func (c *connection) stallStored() {
	if n := c.counted.Swap(0); n != 0 {
		c.shared.stored.bytes.Add(-n)
		c.shared.stored.wake()
	}
}
