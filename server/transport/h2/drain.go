package h2

import "time"

// drainPingTimeout is how long a client has to answer the PING after the first GOAWAY, as in
// grpc-go. Until then the client may open streams, which would fail if the GOAWAY named the last
// stream. A client with little CPU time needs seconds.
const drainPingTimeout = 5 * time.Second

// drainPing is the data of that PING.
const drainPing = "sluice\x00\x01"

// Drain starts a graceful close. Calls are answered until the client has processed the GOAWAY.
func (c *Conn) Drain(out []byte, now time.Duration, reason string) []byte {
	if c.drain.step != drainNone {
		return out
	}
	c.drain = draining{step: drainNotified, since: now, reason: reason}
	out = appendGoAway(out, maxWindow, CodeNo, reason)
	return c.ping(out, []byte(drainPing))
}

// maxStreamNumber is the stream number after which a connection drains: three quarters of the
// range. A client that runs out of numbers could only close the connection, with all calls on it.
const maxStreamNumber = 3 << 29

// Draining reports whether a graceful close has started.
func (c *Conn) Draining() bool { return c.drain.step != drainNone }

// GotGoAway reports whether the client has sent GOAWAY.
func (c *Conn) GotGoAway() bool { return c.gotGoAway }

// Drained reports whether a graceful close is complete: the connection can be closed.
func (c *Conn) Drained() bool { return c.drain.step == drainFinal && c.OpenStreams() == 0 }

// endDrain sends the second GOAWAY, which names the last stream.
func (c *Conn) endDrain() {
	c.drain.step = drainFinal
	c.drain.last = c.lastStream
	c.out = appendGoAway(c.out, c.lastStream, CodeNo, c.drain.reason)
}

// ignores reports whether a stream was opened too late. Its client knows that it is not answered.
func (d *draining) ignores(id uint32) bool { return d.step == drainFinal && id > d.last }

// receivePong handles the acknowledgement of our PING.
func (c *Conn) receivePong(data []byte) {
	switch {
	case data[0] == markPing:
		c.receiveMark(data)
	case c.drain.step == drainNotified && string(data) == drainPing:
		c.endDrain()
	}
}

const maxStrikes = 2

// TooManyPings is the reason of a [ConnError]. gRPC clients that receive it send fewer PINGs from
// then on.
const TooManyPings = "too_many_pings"

// receivePing handles PING (6.7).
func (c *Conn) receivePing(f *frame) error {
	switch {
	case len(f.payload) != pingBytes:
		return &ConnError{CodeFrameSize, "a PING whose payload is not 8 bytes"}
	case f.stream != 0:
		return &ConnError{CodeProtocol, "a PING on a stream"}
	}
	if f.has(flagAck) {
		if c.pings.unacked > 0 {
			c.pings.unacked--
		} else {
			c.glitches.left--
		}
		c.receivePong(f.payload)
		return nil
	}
	c.glitches.left--
	c.out = appendPing(c.out, flagAck, f.payload)
	p := &c.pings
	switch {
	case p.answered:
		p.strikes = 0
		p.answered = false
	case p.received && c.now-p.lastAt < c.server.options.Limits.PingInterval:
		p.strikes++
	}
	p.lastAt = c.now
	p.received = true
	if p.strikes > maxStrikes {
		return &ConnError{CodeEnhanceYourCalm, TooManyPings}
	}
	return nil
}

// Ping appends a PING. Any input that follows shows that the client is alive.
func (c *Conn) Ping(out []byte) []byte { return c.ping(out, make([]byte, pingBytes)) }

// ping appends a PING. Its acknowledgement is not a glitch, even if a client that was suspended
// sends many at once.
func (c *Conn) ping(out, data []byte) []byte {
	c.pings.unacked++
	return appendPing(out, 0, data)
}
