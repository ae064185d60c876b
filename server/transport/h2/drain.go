package h2

import "time"

// drainPingTimeout is how long a client has to answer the PING behind a GOAWAY, as with grpc-go. Until it has, it may begin
// streams, which would fail if the last stream were named; a client that has little time for its processors needs seconds.
const drainPingTimeout = 5 * time.Second

// drainPing is the data of that PING.
const drainPing = "sluice\x00\x01"

// Drain begins the end of the connection: calls are answered until the client knows.
func (c *Conn) Drain(out []byte, now time.Duration, reason string) []byte {
	if c.drain.step != drainNone {
		return out
	}
	c.drain = draining{step: drainNotified, since: now, reason: reason}
	out = appendGoAway(out, maxWindow, CodeNo, reason)
	return c.ping(out, []byte(drainPing))
}

// maxStreamNumber is the number of a stream after which a connection drains: three quarters of those
// there are. A client that has none left could only close the connection, with all calls on it.
const maxStreamNumber = 3 << 29

// Draining reports whether the connection drains or has drained.
func (c *Conn) Draining() bool { return c.drain.step != drainNone }

// GotGoAway reports whether the client has said that it ends the connection.
func (c *Conn) GotGoAway() bool { return c.gotGoAway }

// Drained reports whether the connection has drained: it can be closed.
func (c *Conn) Drained() bool { return c.drain.step == drainFinal && c.OpenStreams() == 0 }

// endDrain tells the client which stream was the last.
func (c *Conn) endDrain() {
	c.drain.step, c.drain.last = drainFinal, c.lastStream
	c.out = appendGoAway(c.out, c.lastStream, CodeNo, c.drain.reason)
}

// ignores reports whether a new stream comes too late. Its client knows that it is not answered.
func (d *draining) ignores(id uint32) bool { return d.step == drainFinal && id > d.last }

// receivePong takes in the answer of a PING of ours.
func (c *Conn) receivePong(data []byte) {
	switch {
	case data[0] == markPing:
		c.receiveMark(data)
	case c.drain.step == drainNotified && string(data) == drainPing:
		c.endDrain()
	}
}
