package h2

const mostStrikes = 2

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
		if c.pings.awaited > 0 {
			c.pings.awaited--
		} else {
			c.odd.left--
		}
		c.receivePong(f.payload)
		return nil
	}
	c.odd.left--
	c.out = appendPing(c.out, flagAck, f.payload)
	p := &c.pings
	switch {
	case p.forgiven:
		p.strikes, p.forgiven = 0, false
	case p.any && c.now-p.at < c.server.options.Limits.PingInterval:
		p.strikes++
	}
	if p.at, p.any = c.now, true; p.strikes > mostStrikes {
		return &ConnError{CodeEnhanceYourCalm, TooManyPings}
	}
	return nil
}

// Ping appends a PING. Whatever comes then shows that the client is there.
func (c *Conn) Ping(out []byte) []byte { return c.ping(out, make([]byte, pingBytes)) }

// ping appends a PING of our own. Its acknowledgement is not an odd act, however many come at once from a client that stood still.
func (c *Conn) ping(out, data []byte) []byte {
	c.pings.awaited++
	return appendPing(out, 0, data)
}
