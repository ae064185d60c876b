package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// healthNames are the names under which the health can be asked for: that of the whole server,
// envoyproxy/ratelimit's, and the gRPC service's.
var healthNames = []string{"", "ratelimit", answer.ServiceName}

// quotaHealth and a domain are the name under which Envoys ask who divides the quotas of the domain.
const quotaHealth = "quota."

// healthPeriod is how late health may be to follow a store. Proxies look each few seconds.
const healthPeriod = 100 * time.Millisecond

// liveness is the server's health, the same over gRPC and HTTP. Its methods may be called
// concurrently.
type liveness struct {
	grpc *health.Server
	// able reports whether there is what health needs.
	able    func() bool
	serving atomic.Bool
	healthy atomic.Bool

	updating sync.Mutex // so that the last update is the last to be told
	// divides says of each domain with quotas whether this server divides it, nil where none does;
	// divided is what it has ever named.
	divides func() map[string]bool
	divided map[string]bool
}

func newLiveness(able func() bool) *liveness {
	l := &liveness{grpc: health.NewServer(), able: able}
	l.update()
	return l
}

// shares has the health say of each domain with quotas whether this server divides it.
func (l *liveness) shares(divides func() map[string]bool) {
	l.updating.Lock()
	l.divides = divides
	l.updating.Unlock()
	l.update()
}

// serve sets whether the server serves.
func (l *liveness) serve(serving bool) {
	l.serving.Store(serving)
	l.update()
}

// ok reports whether the server is healthy.
func (l *liveness) ok() bool { return l.healthy.Load() }

// follow updates the health until ctx ends. Nothing tells that a store has gone away or come back.
func (l *liveness) follow(ctx context.Context) {
	tick := time.NewTicker(healthPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.update()
		}
	}
}

// update works out the health and sends it to the clients that watch it. It must be called when the
// rules have changed.
func (l *liveness) update() {
	l.updating.Lock()
	defer l.updating.Unlock()
	l.healthy.Store(l.serving.Load() && l.able())
	state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if l.ok() {
		state = grpc_health_v1.HealthCheckResponse_SERVING
	}
	for _, name := range healthNames {
		l.grpc.SetServingStatus(name, state)
	}
	if l.divides == nil {
		return
	}
	divides := l.divides()
	for domain := range l.divided {
		if _, still := divides[domain]; !still {
			divides[domain] = false
		}
	}
	for domain, ours := range divides {
		state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
		if ours && l.ok() {
			state = grpc_health_v1.HealthCheckResponse_SERVING
		}
		l.grpc.SetServingStatus(quotaHealth+domain, state)
	}
	l.divided = divides
}
