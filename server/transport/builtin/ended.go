package builtin

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
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

// endedBecause returns what counts the connections that are ended for that reason.
func endedBecause(ended *telemetry.ClosedConnections, why error) prometheus.Counter {
	switch {
	case errors.Is(why, errHoldsMost):
		return ended.Memory
	case errors.Is(why, errBegin):
		return ended.HandshakeTimeout
	case errors.Is(why, errFrame):
		return ended.FrameTimeout
	case errors.Is(why, errUnread):
		return ended.WriteTimeout
	case errors.Is(why, errSilent):
		return ended.KeepaliveTimeout
	case errors.Is(why, errHTTP1):
		return ended.Protocol
	}
	breach, ok := errors.AsType[*h2.ConnError](why)
	switch {
	case !ok:
		return ended.Panic
	case breach.Code == h2.CodeInternal:
		return ended.Panic
	case breach.Code == h2.CodeFlowControl:
		return ended.FlowControl
	case breach.Code == h2.CodeEnhanceYourCalm && breach.Reason == h2.TooManyPings:
		return ended.TooManyPings
	case breach.Code == h2.CodeEnhanceYourCalm:
		return ended.Flood
	}
	return ended.Protocol
}
