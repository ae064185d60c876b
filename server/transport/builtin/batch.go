package builtin

import (
	"errors"
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// processInput answers what came. It reports whether the connection goes on.
//
// A connection whose turn left something to do takes part in a crowd: it waits for a ticket before the
// next turn, of which there are as many as processors, and keeps it until it has parked. Otherwise fifty
// connections that send without a pause would always leave somebody to run, and the scheduler would
// look at the network every 10 ms.
func (c *connection) processInput(in []byte, crowds bool) (used int, more, ok bool) {
	for {
		c.waitForStore()
		if crowds {
			c.lockWithToken()
		} else if !c.mu.TryLock() {
			// A flusher may have the turn for as long as its client does not read. Others need not wait for that.
			c.shared.storeMemory.wakeNext()
			c.mu.Lock()
		}
		if c.closed.Load() || !c.shared.storeMemory.isFull(c.countedStoreBytes.Load()) {
			break
		}
		c.mu.Unlock()
		c.releaseToken()
	}
	used, more, ok = c.processInputLocked(in)
	c.mu.Unlock()
	if crowds || more {
		yield()
	}
	c.releaseToken()
	return used, more, ok
}

// lockWithToken begins a turn that has a ticket. It holds none while it waits for the turn: a flusher may
// have that, whose client does not read.
func (c *connection) lockWithToken() {
	for {
		c.tokens <- struct{}{}
		if c.mu.TryLock() {
			if c.hasToken.Swap(true) { // a flusher has yet to give its ticket back
				<-c.tokens
			}
			return
		}
		<-c.tokens
		c.shared.storeMemory.wakeNext()
		c.mu.Lock()
		c.mu.Unlock() //nolint:staticcheck // it waits for the end of the other's turn
	}
}

func (c *connection) processInputLocked(in []byte) (used int, more, ok bool) {
	if c.ending || c.closed.Load() {
		c.shared.storeMemory.wakeNext()
		return 0, false, false
	}
	now := c.Handler.Clock.Elapsed()
	c.batchStart, c.clockAt = now, now
	c.activity.noteReceived(now)
	c.out = getOutput()
	err := c.processMailboxLocked(now)
	if err == nil {
		err = c.detectProtocolLocked(in)
	}
	if err == nil && c.settingsSent {
		used, more, err = c.feedLocked(in, now)
	}
	c.unfed = len(in) - used
	c.finishBatchLocked(now, err)
	return used, more, c.writeLocked() && !c.ending
}

// detectProtocolLocked sends the first SETTINGS, once the client is known to speak HTTP/2.
func (c *connection) detectProtocolLocked(in []byte) error {
	if c.settingsSent {
		return nil
	}
	yes, undecided := speaksHTTP1(in)
	if yes {
		return errHTTP1
	}
	if !undecided {
		c.sendSettingsLocked()
	}
	return nil
}

func (c *connection) sendSettingsLocked() {
	if !c.settingsSent {
		c.settingsSent = true
		c.out.bytes = c.h2.Start(c.out.bytes)
	}
}

// feedLocked feeds h2.
func (c *connection) feedLocked(in []byte, now time.Duration) (used int, more bool, err error) {
	defer c.recoverPanicLocked(&err)
	c.out.bytes, used, more, err = c.h2.Feed(c.out.bytes, in, now)
	return used, more, err
}

// recoverPanicLocked is deferred by all that a turn does. A panic is a bug of ours, and costs the connection
// alone.
func (c *connection) recoverPanicLocked(err *error) {
	if p := recover(); p != nil {
		c.Handler.Panics.Caught(p)
		c.spare = nil // its state is unknown
		*err = &h2.ConnError{Code: h2.CodeInternal, Reason: "internal error"}
	}
}

// finishBatchLocked ends the connection if it has to.
func (c *connection) finishBatchLocked(now time.Duration, err error) {
	if c.spare != nil {
		c.spare.release()
		c.spare = nil
	}
	if !c.gotSettings && c.h2.GotSettings() {
		c.gotSettings = true
		c.activity.gotSettings.Store(true)
		_ = c.raw.SetDeadline(time.Time{})
	}
	c.activity.noteCalls(now, c.h2.LastStream(), c.h2.OpenStreams())
	c.activity.noteHeaderBlock(c.h2.IncompleteHeaderBlock())
	c.publishStoreBytesLocked()
	if !c.readerDone {
		c.updateBufferedLocked(0)
	}
	if e, ok := errors.AsType[*h2.ConnError](err); ok {
		c.out.bytes = c.h2.GoAway(c.out.bytes, e)
		c.ending = true
		c.reportViolation(e)
	}
	if err == errHTTP1 { //nolint:errorlint // it is greetLocked's own
		c.out.bytes = append(c.out.bytes, c.Hint...)
		c.ending = true
		c.reportViolation(err)
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
	c.activity.writeStartedAt.Store(int64(c.Handler.Clock.Elapsed()))
	_, err := c.conn.Write(out.bytes)
	c.activity.writeStartedAt.Store(0)
	if c.h2.Draining() && c.activity.drainAt.Load() == 0 {
		c.activity.drainAt.Store(int64(c.Handler.Clock.Elapsed()))
	}
	return err == nil
}

// runFlusher takes turns until the inbox is empty.
func (c *connection) runFlusher() {
	for !c.mailbox.stopIfEmpty() {
		c.mu.Lock()
		now := c.Handler.Clock.Elapsed()
		c.out = getOutput()
		c.finishBatchLocked(now, c.processMailboxLocked(now))
		if !c.writeLocked() {
			c.close()
		}
		if c.ending {
			_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // wakes the reader, which ends the connection
		}
		c.mu.Unlock()
		c.releaseToken()
	}
}

// processMailboxLocked does what is in the inbox. An error ends the connection.
func (c *connection) processMailboxLocked(now time.Duration) (err error) {
	finished, todo := c.mailbox.takeAll()
	for _, f := range finished {
		if c.ending || err != nil {
			_ = c.runGuardedLocked(f.dropLocked) // the connection ends anyway
			continue
		}
		err = c.runGuardedLocked(f.sendLocked)
	}
	switch {
	case c.ending || err != nil || todo == 0:
		return err
	case c.conn == nil: // the handshake goes on; who is told of an age or an idle time is told again
		if todo&(commandDrainStop|commandRetire) != 0 {
			c.close()
		}
		return nil
	}
	return c.executeCommandsLocked(todo, now)
}

// runGuardedLocked does something that may panic.
func (c *connection) runGuardedLocked(do func()) (err error) {
	defer c.recoverPanicLocked(&err)
	do()
	return nil
}

// executeCommandsLocked does what the watch and a drain want.
func (c *connection) executeCommandsLocked(todo commands, now time.Duration) (err error) {
	defer c.recoverPanicLocked(&err)
	c.sendSettingsLocked()
	for _, d := range drainReasons {
		if todo&d.order != 0 {
			c.out.bytes = c.h2.Drain(c.out.bytes, now, d.told)
			c.endQuotaStreamsLocked()
		}
	}
	if todo&commandPing != 0 {
		c.out.bytes = c.h2.Ping(c.out.bytes)
	}
	if todo&commandResetOverdue != 0 {
		c.out.bytes = c.h2.ResetOverdue(c.out.bytes, now)
	}
	return nil
}
