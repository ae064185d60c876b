package builtin

import (
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// shared is the state that the connections of a transport share.
type shared struct {
	transport.Config
	bridge      *bridge
	h2          *h2.Server
	buffered    memoryBudget
	storeMemory storeMemory
	stalled     stalledWriters

	lingerTime time.Duration // defaultLingerTime, except in tests
}
