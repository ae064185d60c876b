package h2

const maxStrikes = 2

// TooManyPings is the reason of a [ConnError]. Clients of gRPC know it, and ping less often from then
// on.
const TooManyPings = "too_many_pings"

// receivePing answers (6.7).
func (c *Conn) receivePing(f *frame) error {
	switch {
	case len(f.payload) != pingBytes:
		return &ConnError{CodeFrameSize, "a PING that has not 8 bytes"}
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
		p.strikes, p.answered = 0, false
	case p.received && c.now-p.lastAt < c.server.options.Limits.PingInterval:
		p.strikes++
	}
	if p.lastAt, p.received = c.now, true; p.strikes > maxStrikes {
		return &ConnError{CodeEnhanceYourCalm, TooManyPings}
	}
	return nil
}

// Ping appends a PING. Whatever comes then shows that the client is there.
func (c *Conn) Ping(out []byte) []byte { return c.ping(out, make([]byte, pingBytes)) }

// ping appends a PING of our own. Its acknowledgement is not an odd act, however many come at once from a client that stood still.
func (c *Conn) ping(out, data []byte) []byte {
	c.pings.unacked++
	return appendPing(out, 0, data)
}
