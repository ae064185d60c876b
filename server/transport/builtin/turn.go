package builtin

import (
	"errors"
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// takeTurn answers what came. It reports whether the connection goes on.
//
// A connection whose turn left something to do takes part in a crowd: it waits for a ticket before the
// next turn, of which there are as many as processors, and keeps it until it has parked. Otherwise fifty
// connections that send without a pause would always leave somebody to run, and the scheduler would
// look at the network every 10 ms.
func (c *connection) takeTurn(in []byte, crowds bool) (used int, more, ok bool) {
	for {
		c.waitForStore()
		if crowds {
			c.lockWithTicket()
		} else if !c.turnMu.TryLock() {
			// A flusher may have the turn for as long as its client does not read. Others need not wait for that.
			c.shared.stored.wake()
			c.turnMu.Lock()
		}
		if c.shut.Load() || !c.shared.stored.full(c.counted.Load()) {
			break
		}
		c.turnMu.Unlock()
		c.leaveCrowd()
	}
	used, more, ok = c.turnLocked(in)
	c.turnMu.Unlock()
	if crowds || more {
		park()
	}
	c.leaveCrowd()
	return used, more, ok
}

// lockWithTicket begins a turn that has a ticket. It holds none while it waits for the turn: a flusher may
// have that, whose client does not read.
func (c *connection) lockWithTicket() {
	for {
		c.crowd <- struct{}{}
		if c.turnMu.TryLock() {
			if c.ticket.Swap(true) { // a flusher has yet to give its ticket back
				<-c.crowd
			}
			return
		}
		<-c.crowd
		c.shared.stored.wake()
		c.turnMu.Lock()
		c.turnMu.Unlock() //nolint:staticcheck // it waits for the end of the other's turn
	}
}

func (c *connection) turnLocked(in []byte) (used int, more, ok bool) {
	if c.ending || c.shut.Load() {
		c.shared.stored.wake()
		return 0, false, false
	}
	now := c.Handler.Clock.Elapsed()
	c.since, c.at = now, now
	c.watched.heard(now)
	c.out = takeOutput()
	err := c.takeInboxLocked(now)
	if err == nil {
		err = c.greetLocked(in)
	}
	if err == nil && c.started {
		used, more, err = c.feedLocked(in, now)
	}
	c.rest = len(in) - used
	c.endTurnLocked(now, err)
	return used, more, c.writeLocked() && !c.ending
}

// greetLocked sends the first SETTINGS, once the client is known to speak HTTP/2.
func (c *connection) greetLocked(in []byte) error {
	if c.started {
		return nil
	}
	yes, undecided := speaksHTTP1(in)
	if yes {
		return errHTTP1
	}
	if !undecided {
		c.startLocked()
	}
	return nil
}

func (c *connection) startLocked() {
	if !c.started {
		c.started = true
		c.out.bytes = c.h2.Start(c.out.bytes)
	}
}

// feedLocked feeds h2.
func (c *connection) feedLocked(in []byte, now time.Duration) (used int, more bool, err error) {
	defer c.caughtLocked(&err)
	c.out.bytes, used, more, err = c.h2.Feed(c.out.bytes, in, now)
	return used, more, err
}

// caughtLocked is deferred by all that a turn does. A panic is a bug of ours, and costs the connection
// alone.
func (c *connection) caughtLocked(err *error) {
	if p := recover(); p != nil {
		c.Handler.Panics.Report(p)
		c.spare = nil // its state is unknown
		*err = &h2.ConnError{Code: h2.CodeInternal, Reason: "internal error"}
	}
}

// endTurnLocked ends the connection if it has to.
func (c *connection) endTurnLocked(now time.Duration, err error) {
	if c.spare != nil {
		c.spare.release()
		c.spare = nil
	}
	if !c.begun && c.h2.Begun() {
		c.begun = true
		c.watched.ready.Store(true)
		_ = c.raw.SetDeadline(time.Time{})
	}
	c.watched.calls(now, c.h2.Last(), c.h2.Open())
	c.watched.block(c.h2.BlockSince())
	c.countStoredLocked()
	if !c.closed {
		c.parksLocked(0)
	}
	if e, ok := errors.AsType[*h2.ConnError](err); ok {
		c.out.bytes = c.h2.GoAway(c.out.bytes, e)
		c.ending = true
		c.blame(e)
	}
	if err == errHTTP1 { //nolint:errorlint // it is greetLocked's own
		c.out.bytes = append(c.out.bytes, c.Hint...)
		c.ending = true
		c.blame(err)
	}
	if c.h2.Drained() {
		c.ending = true
	}
}

// writeLocked writes what is to go out. It reports whether that went well.
func (c *connection) writeLocked() bool {
	out := c.out
	c.out = nil
	defer out.release()
	if len(out.bytes) == 0 {
		return true
	}
	c.watched.writing.Store(int64(c.Handler.Clock.Elapsed()))
	_, err := c.conn.Write(out.bytes)
	c.watched.writing.Store(0)
	if c.h2.Draining() && c.watched.toldAt.Load() == 0 {
		c.watched.toldAt.Store(int64(c.Handler.Clock.Elapsed()))
	}
	return err == nil
}

// flush takes turns until the inbox is empty.
func (c *connection) flush() {
	for !c.inbox.flushed() {
		c.turnMu.Lock()
		now := c.Handler.Clock.Elapsed()
		c.out = takeOutput()
		c.endTurnLocked(now, c.takeInboxLocked(now))
		if !c.writeLocked() {
			c.close()
		}
		if c.ending {
			_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // wakes the reader, which ends the connection
		}
		c.turnMu.Unlock()
		c.leaveCrowd()
	}
}

// takeInboxLocked does what is in the inbox. An error ends the connection.
func (c *connection) takeInboxLocked(now time.Duration) (err error) {
	finished, todo := c.inbox.take()
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
		if todo&(orderStop|orderRetire) != 0 {
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
			c.drainQuotasLocked()
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
