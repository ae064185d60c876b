package builtin

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// Limits of the memory of calls that are pending in a store. A connection whose calls take more
// than heavyConnBytes stops reading at maxHeavyBytes, so that connections with few calls can
// continue.
const (
	maxStoreBytes  = maxBuffered / 2
	maxHeavyBytes  = maxBuffered / 4
	heavyConnBytes = 64 << 10
)

// storeMemory is the memory of all calls that are pending in a store. Closing a connection does not
// free it, because the store uses the calls until it has decided them. Therefore, connections stop
// reading at a limit.
type storeMemory struct {
	bytes atomic.Int64
	heavy waitQueue
	light waitQueue
}

// queueFor returns the queue, and the limit, of a connection whose calls take the given number of
// bytes.
func (s *storeMemory) queueFor(bytes int64) (q *waitQueue, limit int64) {
	if bytes > heavyConnBytes {
		return &s.heavy, maxHeavyBytes
	}
	return &s.light, maxStoreBytes
}

// isFull reports whether a connection whose calls take the given number of bytes has to wait.
func (s *storeMemory) isFull(bytes int64) bool {
	_, limit := s.queueFor(bytes)
	return s.bytes.Load() >= limit
}

// wakeNext wakes the first connection of each queue, if there is memory. At the end of its next
// batch, that connection calls wakeNext again, which wakes the second one, and so on.
func (s *storeMemory) wakeNext() {
	if s.bytes.Load() < maxHeavyBytes {
		s.heavy.wakeFirst()
	}
	if s.bytes.Load() < maxStoreBytes {
		s.light.wakeFirst()
	}
}

// waitQueue is a FIFO queue of connections that wait for memory.
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

// remove removes a connection, unless wakeFirst has.
func (q *waitQueue) remove(e *list.Element) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.conns.Remove(e)
	q.length.Store(int32(q.conns.Len())) //nolint:gosec // bounded by --max-connections
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

// waitForStore waits while too many calls are pending in a store, on this connection or in total. A
// connection may have at most MaxStreams calls in a store. The limit on streams does not imply
// that, because a client can reset its calls at once. A closed connection does not wait.
func (c *connection) waitForStore() {
	s := &c.storeMemory
	for {
		bytes := c.countedStoreBytes.Load()
		tooMany := c.storeCalls.Load() >= int64(c.Limits.MaxStreams)
		if !tooMany && !s.isFull(bytes) || c.closed.Load() {
			return
		}
		c.activity.waitsForStore.Store(true)
		if tooMany {
			<-c.storeWake
			continue
		}
		q, _ := s.queueFor(bytes)
		element := q.push(c)
		if s.isFull(bytes) {
			<-c.storeWake
		}
		q.remove(element)
	}
}

// addToStoreLocked counts a call that is now pending in a store.
func (x *rateLimitCall) addToStoreLocked() {
	x.awaited = true
	x.countedBytes = x.MemoryBytes()
	x.conn.storeBytes += x.countedBytes
	x.conn.storeCalls.Add(1)
}

// removeFromStoreLocked counts a call that has returned from a store.
func (x *rateLimitCall) removeFromStoreLocked() {
	x.conn.storeBytes -= x.countedBytes
	x.conn.storeCalls.Add(-1)
	x.conn.storeReturned = true
}

// publishStoreBytesLocked updates shared.storeMemory at the end of a batch.
func (c *connection) publishStoreBytesLocked() {
	grown := int64(c.storeBytes) - c.countedStoreBytes.Swap(int64(c.storeBytes))
	if grown != 0 {
		c.storeMemory.bytes.Add(grown)
	}
	if c.storeReturned { // grown does not show it if the calls were not counted
		c.storeReturned = false
		wake(c.storeWake)
	}
	c.storeMemory.wakeNext()
}

// discountStoreBytes subtracts the connection's calls from shared.storeMemory while its client does
// not read, since their memory cannot be freed soon and other connections need not wait for it. The
// next batch adds them again.
func (c *connection) discountStoreBytes() {
	if n := c.countedStoreBytes.Swap(0); n != 0 {
		c.storeMemory.bytes.Add(-n)
		c.storeMemory.wakeNext()
	}
}
