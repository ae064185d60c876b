package builtin

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// processInput processes a batch of input: it answers the calls in it. ok is false if the
// connection ends.
//
// A connection with unprocessed input must acquire a token before its next batch, and releases it
// after yielding; see package cpu. Without tokens, fifty busy connections would keep the run queue
// non-empty, and Go's scheduler would poll the network only every 10 ms.
func (c *connection) processInput(in []byte, needsToken bool) (used int, more, ok bool) {
	for {
		c.waitForStore()
		if needsToken {
			c.lockWithToken()
		} else if !c.mu.TryLock() {
			// A flusher keeps the lock while its client does not read. Let the next connection that
			// waits for a store continue meanwhile.
			c.storeMemory.wakeNext()
			c.mu.Lock()
		}
		if c.closed.Load() || !c.storeMemory.isFull(c.countedStoreBytes.Load()) {
			break
		}
		c.mu.Unlock()
		c.releaseToken()
	}
	used, more, ok = c.processInputLocked(in)
	c.mu.Unlock()
	if needsToken || more {
		cpu.Yield()
	}
	c.releaseToken()
	return used, more, ok
}

// lockWithToken locks c.mu and acquires a token. It has no token while it waits for the lock,
// because a flusher keeps the lock while its client does not read.
func (c *connection) lockWithToken() {
	for {
		c.Tokens.AcquireCall()
		if c.mu.TryLock() {
			c.hasToken.Store(true)
			return
		}
		c.Tokens.ReleaseCall()
		c.storeMemory.wakeNext()
		c.mu.Lock()
		c.mu.Unlock() //nolint:staticcheck // waits for the other batch
	}
}

func (c *connection) processInputLocked(in []byte) (used int, more, ok bool) {
	if c.ending || c.closed.Load() {
		c.storeMemory.wakeNext()
		return 0, false, false
	}
	now := c.Handler.Clock.Elapsed()
	c.batchStart = now
	c.clockAt = now
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

// detectProtocolLocked sends our SETTINGS, once the client is known to speak HTTP/2: people try the
// gRPC port with curl or a browser, and probes use HTTP/1. They get a readable answer. This causes no
// delay, because HTTP/2 clients send their preface at once (RFC 9113, 3.4).
func (c *connection) detectProtocolLocked(in []byte) error {
	if c.settingsSent {
		return nil
	}
	yes, undecided := transport.SpeaksHTTP1(in)
	if yes {
		return errHTTP1
	}
	if !undecided {
		c.sendSettingsLocked()
	}
	return nil
}

// http1Hint is the body of the response to an HTTP/1 request.
const http1Hint = "This port speaks gRPC over HTTP/2, but the request is HTTP/1. Try grpcurl or sluice call. /json, unless disabled, is served at --http-addr or --json-addr.\n"

func (c *connection) sendSettingsLocked() {
	if !c.settingsSent {
		c.settingsSent = true
		c.out.bytes = c.h2.Start(c.out.bytes)
	}
}

func (c *connection) feedLocked(in []byte, now time.Duration) (used int, more bool, err error) {
	defer c.recoverPanicLocked(&err)
	c.out.bytes, used, more, err = c.h2.Feed(c.out.bytes, in, now)
	return used, more, err
}

// recoverPanicLocked is deferred by all parts of a batch. A panic is a bug, and closes only this
// connection.
func (c *connection) recoverPanicLocked(err *error) {
	if p := recover(); p != nil {
		c.Handler.Panics.Report(p)
		c.spare = nil // its state is unknown
		*err = &h2.ConnError{Code: h2.CodeInternal, Reason: "internal error"}
	}
}

// finishBatchLocked publishes the state that other goroutines read, and determines whether the
// connection ends.
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
		c.updateBufferedLocked()
	}
	if e, ok := errors.AsType[*h2.ConnError](err); ok {
		c.out.bytes = c.h2.GoAway(c.out.bytes, e)
		c.ending = true
		c.reportViolation(e)
	}
	if err == errHTTP1 { //nolint:errorlint // never wrapped
		c.out.bytes = fmt.Appendf(c.out.bytes, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(http1Hint), http1Hint)
		c.ending = true
		c.reportViolation(err)
	}
	if c.h2.Drained() {
		c.ending = true
	}
}

// writeLocked writes the output of the batch, and reports whether that succeeded.
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

// runFlusher processes the mailbox until it is empty.
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
			// This wakes the reader, which closes the connection.
			_ = c.raw.SetReadDeadline(time.Unix(1, 0))
		}
		c.mu.Unlock()
		c.releaseToken()
	}
}

// processMailboxLocked processes the completions and commands in the mailbox. An error ends the
// connection.
func (c *connection) processMailboxLocked(now time.Duration) (err error) {
	completions, cmds := c.mailbox.takeAll()
	for _, f := range completions {
		if c.ending || err != nil {
			_ = c.runGuardedLocked(f.dropLocked) // the connection ends in any case
			continue
		}
		err = c.runGuardedLocked(f.sendLocked)
	}
	switch {
	case c.ending || err != nil || cmds == 0:
		return err
	case c.conn == nil: // the handshake is not over; drains for age or idleness are requested again
		if cmds&(commandDrainStop|commandRetire) != 0 {
			c.close()
		}
		return nil
	}
	return c.executeCommandsLocked(cmds, now)
}

// runGuardedLocked calls a function that may panic.
func (c *connection) runGuardedLocked(do func()) (err error) {
	defer c.recoverPanicLocked(&err)
	do()
	return nil
}

// executeCommandsLocked executes the commands of the monitor and of a drain.
func (c *connection) executeCommandsLocked(cmds commands, now time.Duration) (err error) {
	defer c.recoverPanicLocked(&err)
	c.sendSettingsLocked()
	for _, d := range drainReasons {
		if cmds&d.command != 0 {
			c.out.bytes = c.h2.Drain(c.out.bytes, now, d.reason)
			c.endQuotaStreamsLocked()
		}
	}
	if cmds&commandPing != 0 {
		c.out.bytes = c.h2.Ping(c.out.bytes)
	}
	if cmds&commandResetOverdue != 0 {
		c.out.bytes = c.h2.ResetOverdue(c.out.bytes, now)
	}
	return nil
}
