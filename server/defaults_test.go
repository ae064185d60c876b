package server

import (
	"cmp"
	"time"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// fillBounds and fillLimits give the fields that are zero the values that a test rarely needs to say.
func fillBounds(b answer.Bounds) answer.Bounds {
	return answer.Bounds{
		MessageBytes: cmp.Or(b.MessageBytes, 4<<20),
		Descriptors:  cmp.Or(b.Descriptors, 1000),
		Entries:      cmp.Or(b.Entries, 64),
		KeyBytes:     cmp.Or(b.KeyBytes, 1<<10),
	}
}

func fillLimits(l transport.Limits) transport.Limits {
	return transport.Limits{
		MaxMessageBytes:       cmp.Or(l.MaxMessageBytes, 4<<20),
		MaxConnections:        cmp.Or(l.MaxConnections, 10_000),
		MaxHTTPConnections:    cmp.Or(l.MaxHTTPConnections, 1000),
		MaxStreams:            cmp.Or(l.MaxStreams, 1024),
		MaxHeaderBytes:        cmp.Or(l.MaxHeaderBytes, 128<<10),
		ConnectionTimeout:     cmp.Or(l.ConnectionTimeout, 5*time.Second),
		MaxConnectionIdle:     cmp.Or(l.MaxConnectionIdle, 15*time.Minute),
		MaxConnectionAge:      l.MaxConnectionAge,
		MaxConnectionAgeGrace: l.MaxConnectionAgeGrace,
		KeepaliveTime:         cmp.Or(l.KeepaliveTime, time.Minute),
		KeepaliveTimeout:      cmp.Or(l.KeepaliveTimeout, 10*time.Second),
		KeepaliveMinTime:      cmp.Or(l.KeepaliveMinTime, 10*time.Second),
	}
}
