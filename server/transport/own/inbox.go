package own

import (
	"sync"
	"time"
)

// inbox is what others want to be done in a connection's next turn. Its lock is never held over I/O.
type inbox struct {
	sync.Mutex
	finished []finisher
	orders   orders
	flushing bool // a flusher runs, which will look again
}

// finisher is something that another goroutine has done for a call. In the next turn it goes out, or it is
// dropped, as the connection ends.
type finisher interface {
	sendLocked()
	dropLocked()
}

// orders are what the watch and a drain want to be done.
type orders byte

const (
	orderStop orders = 1 << iota // drain, because the server does
	orderIdle                    // drain
	orderAge                     // drain
	orderPing
	orderOverdue
)

// drainReasons is what a client is told, in grpc-go's words.
var drainReasons = [...]struct {
	order orders
	told  string
}{{orderStop, "graceful_stop"}, {orderAge, "max_age"}, {orderIdle, "max_idle"}}

// order has something done in the next turn.
func (c *connection) order(o orders) {
	if o&orderStop != 0 {
		c.watched.toldAt.Store(int64(c.transport.Handler.Clock.Elapsed()))
	}
	c.post(func() { c.inbox.orders |= o })
}

// finish has something go out in the next turn.
func (c *connection) finish(f finisher) {
	c.post(func() { c.inbox.finished = append(c.inbox.finished, f) })
}

// post puts something into the inbox.
func (c *connection) post(put func()) {
	c.inbox.Lock()
	defer c.inbox.Unlock()
	put()
	if !c.inbox.flushing {
		c.inbox.flushing = true
		go c.flush()
	}
}

// flush takes turns until the inbox is empty.
func (c *connection) flush() {
	for {
		c.inbox.Lock()
		if c.inbox.finished == nil && c.inbox.orders == 0 {
			c.inbox.flushing = false
			c.inbox.Unlock()
			return
		}
		c.inbox.Unlock()
		c.turn.Lock()
		now := c.transport.Handler.Clock.Elapsed()
		c.out = takeOutput()
		c.endTurnLocked(now, c.takeInboxLocked(now))
		if !c.writeLocked() {
			c.close()
		}
		if c.ending {
			_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // wakes the reader, which ends the connection
		}
		c.turn.Unlock()
		c.leaveCrowd()
	}
}

// takeInboxLocked does what is in the inbox. An error ends the connection.
func (c *connection) takeInboxLocked(now time.Duration) (err error) {
	c.inbox.Lock()
	finished, todo := c.inbox.finished, c.inbox.orders
	c.inbox.finished, c.inbox.orders = nil, 0
	c.inbox.Unlock()
	for _, f := range finished {
		if c.ending || err != nil {
			_ = c.guardLocked(f.dropLocked) // the connection ends anyway
			continue
		}
		err = c.guardLocked(f.sendLocked)
	}
	switch {
	case c.ending || err != nil || todo == 0:
		return err
	case c.conn == nil: // the handshake goes on; who is told of an age or an idle time is told again
		if todo&orderStop != 0 {
			c.close()
		}
		return nil
	}
	return c.obeyLocked(todo, now)
}

// guardLocked does something that may panic.
func (c *connection) guardLocked(do func()) (err error) {
	defer c.caughtLocked(&err)
	do()
	return nil
}

// obeyLocked does what the watch and a drain want.
func (c *connection) obeyLocked(todo orders, now time.Duration) (err error) {
	defer c.caughtLocked(&err)
	c.startLocked()
	for _, d := range drainReasons {
		if todo&d.order != 0 {
			c.out.bytes = c.h2.Drain(c.out.bytes, now, d.told)
		}
	}
	if todo&orderPing != 0 {
		c.out.bytes = c.h2.Ping(c.out.bytes)
	}
	if todo&orderOverdue != 0 {
		c.out.bytes = c.h2.Overdue(c.out.bytes, now)
	}
	return nil
}
