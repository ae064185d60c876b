package own

import (
	"errors"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-ratelimit/sluice/h2"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Why a connection is ended, beside [h2.ConnError].
var (
	errHoldsMost = errors.New("it holds the most memory of all connections for requests that are not whole")
	errBegin     = errors.New("no HTTP/2 within --connection-timeout")
	errFrame     = errors.New("a frame began and did not end")
	errUnread    = errors.New("the client does not read")
	errSilent    = errors.New("a ping was not answered within --keepalive-timeout")
)

// blame counts and logs, once, that the connection is ended because of what its client did. Ends that
// are nobody's fault, such as that of age, are not counted.
func (c *connection) blame(why error) {
	c.blaming.Do(func() {
		h := c.transport.Handler
		transport.Ended(endedBecause(&h.Metrics.Ended, why), h.Rare, c.raw, why)
	})
}

// end closes the connection at once because of what its client did. It may be called by anybody.
func (c *connection) end(why error) {
	c.blame(why)
	c.close()
}

// neverBegan blames a connection whose client sent no SETTINGS in time.
func (c *connection) neverBegan(err error) {
	timeout, ok := errors.AsType[net.Error](err)
	if !ok || !timeout.Timeout() {
		return
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	if !c.begun && !c.ending {
		c.blame(errBegin)
	}
}

// endedBecause returns what counts the connections that are ended for that reason.
func endedBecause(ended *telemetry.Ended, why error) prometheus.Counter {
	switch {
	case errors.Is(why, errHoldsMost):
		return ended.Memory
	case errors.Is(why, errBegin):
		return ended.Begin
	case errors.Is(why, errFrame):
		return ended.Frame
	case errors.Is(why, errUnread):
		return ended.Unread
	case errors.Is(why, errSilent):
		return ended.Silent
	case errors.Is(why, transport.ErrHTTP1):
		return ended.Protocol
	}
	breach, ok := errors.AsType[*h2.ConnError](why)
	switch {
	case !ok:
		return ended.Bug
	case breach.Code == h2.CodeInternal:
		return ended.Bug
	case breach.Code == h2.CodeFlowControl:
		return ended.Windows
	case breach.Code == h2.CodeEnhanceYourCalm && breach.Reason == h2.TooManyPings:
		return ended.Pings
	case breach.Code == h2.CodeEnhanceYourCalm:
		return ended.OddActs
	}
	return ended.Protocol
}
