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

// healthNames contains the service names for health checks: of the server, of envoyproxy/ratelimit
// and of the gRPC service.
var healthNames = []string{"", "ratelimit", answer.ServiceName}

// quotaHealthPrefix is the prefix of the service names of domains with quotas, such as quota.shop.
// Such a service is healthy on the server that divides the quotas of the domain.
const quotaHealthPrefix = "quota."

// healthPeriod is the interval at which the state of the store is checked. Proxies check health
// every few seconds.
const healthPeriod = 100 * time.Millisecond

// healthState is the server's health for gRPC and HTTP. Its methods may be called concurrently.
type healthState struct {
	grpc *health.Server
	// ready reports whether the dependencies of health are available.
	ready   func() bool
	serving atomic.Bool
	healthy atomic.Bool

	updating sync.Mutex // held during an update, so that updates are sent in order
	// divides returns the domains with quotas, and whether this server divides their quotas. It is
	// nil without a quota service.
	divides func() map[string]bool
	// divided contains all domains that divides has ever returned. Domains that it no longer
	// returns are NOT_SERVING.
	divided map[string]bool
}

func newHealthState(ready func() bool) *healthState {
	l := &healthState{grpc: health.NewServer(), ready: ready}
	l.update()
	return l
}

// setQuotaDomains sets the function divides. The following updates include the service names of the
// domains with quotas.
func (l *healthState) setQuotaDomains(divides func() map[string]bool) {
	l.updating.Lock()
	l.divides = divides
	l.updating.Unlock()
	l.update()
}

// setServing sets whether the server is serving.
func (l *healthState) setServing(serving bool) {
	l.serving.Store(serving)
	l.update()
}

// isHealthy reports whether the server is healthy.
func (l *healthState) isHealthy() bool { return l.healthy.Load() }

// poll updates the health until ctx is done, because there are no notifications from the store.
func (l *healthState) poll(ctx context.Context) {
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

// update computes the health and sends it to clients that watch it. It must be called after each
// change of the rules.
func (l *healthState) update() {
	l.updating.Lock()
	defer l.updating.Unlock()
	l.healthy.Store(l.serving.Load() && l.ready())
	state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if l.isHealthy() {
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
	for domain, leads := range divides {
		state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
		if leads && l.isHealthy() {
			state = grpc_health_v1.HealthCheckResponse_SERVING
		}
		l.grpc.SetServingStatus(quotaHealthPrefix+domain, state)
	}
	l.divided = divides
}
