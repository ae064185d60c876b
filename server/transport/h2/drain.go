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
	c.drain.step, c.drain.last = drainFinal, c.lastStream
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
