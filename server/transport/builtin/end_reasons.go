package builtin

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-ratelimit/sluice/server/transport/h2"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Reasons to close a connection, in addition to [h2.ConnError].
var (
	errMemory           = errors.New("the connections buffer too many bytes, and this one the most")
	errHandshakeTimeout = errors.New("no HTTP/2 within the time for a handshake")
	errFrameTimeout     = errors.New("a frame was not completed in time")
	errWriteTimeout     = errors.New("the client does not read")
	errKeepaliveTimeout = errors.New("a ping was not answered in time")
	errHTTP1            = errors.New("the client speaks HTTP/1, but this port serves gRPC over HTTP/2")
)

// endedCounter returns the counter of a reason.
func endedCounter(ended *telemetry.ClosedConnections, why error) prometheus.Counter {
	switch {
	case errors.Is(why, errMemory):
		return ended.Memory
	case errors.Is(why, errHandshakeTimeout):
		return ended.HandshakeTimeout
	case errors.Is(why, errFrameTimeout):
		return ended.FrameTimeout
	case errors.Is(why, errWriteTimeout):
		return ended.WriteTimeout
	case errors.Is(why, errKeepaliveTimeout):
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
