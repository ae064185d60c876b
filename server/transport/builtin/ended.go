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
	case errors.Is(why, errHTTP1):
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
