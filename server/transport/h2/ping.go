package h2

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
		p.strikes, p.answered = 0, false
	case p.received && c.now-p.lastAt < c.server.options.Limits.PingInterval:
		p.strikes++
	}
	if p.lastAt, p.received = c.now, true; p.strikes > maxStrikes {
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
