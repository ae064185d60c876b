package builtin

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// Bounds of the memory of the calls that stores decide. A connection whose own calls take more than busyBytes
// stops reading at mostOfBusy, so that connections with few calls go on.
const (
	maxStoreBytes  = maxBuffered / 2
	maxHeavyBytes  = maxBuffered / 4
	heavyConnBytes = 64 << 10
)

// storeMemory is the memory of the calls of all connections that stores decide. Closing a connection does not free it,
// since the store has the calls until it has decided them. So connections stop reading at a bound.
type storeMemory struct {
	bytes atomic.Int64
	heavy waitQueue
	light waitQueue
}

// queueFor returns where a connection waits whose calls take the given number of bytes.
func (s *storeMemory) queueFor(bytes int64) (q *waitQueue, most int64) {
	if bytes > heavyConnBytes {
		return &s.heavy, maxHeavyBytes
	}
	return &s.light, maxStoreBytes
}

// isFull reports whether such a connection has to wait.
func (s *storeMemory) isFull(bytes int64) bool {
	_, most := s.queueFor(bytes)
	return s.bytes.Load() >= most
}

// wakeNext lets the first connection of each queue go on, if there is room. The connection calls it again at the end of
// its next turn: the others go on one after another.
func (s *storeMemory) wakeNext() {
	if s.bytes.Load() < maxHeavyBytes {
		s.heavy.wakeFirst()
	}
	if s.bytes.Load() < maxStoreBytes {
		s.light.wakeFirst()
	}
}

// waitQueue are connections that wait for room, in the order in which they began to.
type waitQueue struct {
	length atomic.Int32
	mu     sync.Mutex
	conns  list.List
}

func (q *waitQueue) push(c *connection) *list.Element {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.length.Add(1)
	return q.conns.PushBack(c)
}

// remove removes a connection, unless wake has.
func (q *waitQueue) remove(e *list.Element) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.conns.Remove(e)
	q.length.Store(int32(q.conns.Len())) //nolint:gosec // there are not so many connections
}

func (q *waitQueue) wakeFirst() {
	if q.length.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if first := q.conns.Front(); first != nil {
		c, _ := q.conns.Remove(first).(*connection)
		q.length.Add(-1)
		wake(c.storeWake)
	}
}

// waitForStore waits while stores decide too many calls: as many of the connection as it may have streams, since
// a client that resets its calls at once would otherwise have more, or too many of all connections. A connection that
// is closed does not wait.
func (c *connection) waitForStore() {
	s := &c.shared.storeMemory
	for {
		bytes := c.countedStoreBytes.Load()
		own := c.storeCalls.Load() >= int64(c.Limits.MaxStreams)
		if !own && !s.isFull(bytes) || c.closed.Load() {
			return
		}
		c.activity.waitsForStore.Store(true)
		if own {
			<-c.storeWake
			continue
		}
		q, _ := s.queueFor(bytes)
		place := q.push(c)
		if s.isFull(bytes) {
			<-c.storeWake
		}
		q.remove(place)
	}
}

// addToStoreLocked counts a call that a store decides.
func (x *rateLimitCall) addToStoreLocked() {
	x.awaited = true
	x.countedBytes = x.Bytes()
	x.conn.storeBytes += x.countedBytes
	x.conn.storeCalls.Add(1)
}

// removeFromStoreLocked counts a call that a store has decided.
func (x *rateLimitCall) removeFromStoreLocked() {
	x.conn.storeBytes -= x.countedBytes
	x.conn.storeCalls.Add(-1)
	x.conn.storeReturned = true
}

// publishStoreBytesLocked is called at the end of each turn.
func (c *connection) publishStoreBytesLocked() {
	grown := int64(c.storeBytes) - c.countedStoreBytes.Swap(int64(c.storeBytes))
	if grown != 0 {
		c.shared.storeMemory.bytes.Add(grown)
	}
	if c.storeReturned { // which is not what grown says: the calls may not have been counted
		c.storeReturned = false
		wake(c.storeWake)
	}
	c.shared.storeMemory.wakeNext()
}

// discountStoreBytes has others not wait for what the connection cannot take back, since its client does not read. The
// next turn counts it again.
func (c *connection) discountStoreBytes() {
	if n := c.countedStoreBytes.Swap(0); n != 0 {
		c.shared.storeMemory.bytes.Add(-n)
		c.shared.storeMemory.wakeNext()
	}
}
