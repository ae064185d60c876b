package builtin

import (
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// shared is what the connections of a transport share.
type shared struct {
	transport.Config
	bridge  *bridge
	h2      *h2.Server
	parked  parked
	stored  stored
	crowd   chan struct{} // holds the tickets that are taken; see takeTurn
	stalled stalled

	lingering time.Duration // mostLingering but in tests
}
