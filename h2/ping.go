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
	c.odd.left--
	if f.has(flagAck) {
		c.receivePong(f.payload)
		return nil
	}
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
func (c *Conn) Ping(out []byte) []byte { return appendPing(out, 0, make([]byte, pingBytes)) }
