package blocks_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// fleet is several sluices with one store, and their clients.
type fleet struct {
	store    *storetest.Server
	args     []string
	addrs    []string // of the store
	sluices  []*atomic.Pointer[sluice.Sluice]
	services []rlsv3.RateLimitServiceClient
	timeout  time.Duration // of a request
	hasty    bool          // a quarter of the requests have up to an eighth of the timeout
	requests atomic.Int64  // answered
	failed   atomic.Int64  // without an answer, or with an error
}

// direct returns the addresses of a store for three sluices.
func direct(s *storetest.Server) []string { return []string{s.Addr, s.Addr, s.Addr} }

// startSluices starts a sluice for each of the given addresses of the store, with further arguments.
func startSluices(t *testing.T, store *storetest.Server, addrs []string, rules string, timeout time.Duration, args ...string) *fleet {
	t.Helper()
	f := &fleet{store: store, addrs: addrs, timeout: timeout}
	f.args = append([]string{"--store-blocks", "auto", "--config", suite.WriteRules(t, rules)}, args...)
	for n := range addrs {
		s := new(atomic.Pointer[sluice.Sluice])
		s.Store(f.start(t, n))
		conn, err := grpc.NewClient("passthrough:///sluice", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}}),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", s.Load().Addr("grpc")) // also after a restart
			}))
		must.OK(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		f.sluices = append(f.sluices, s)
		f.services = append(f.services, rlsv3.NewRateLimitServiceClient(conn))
	}
	return f
}

func (f *fleet) options(n int) sluice.Options {
	return sluice.Options{Binary: sluiceBinary, Args: append([]string{"--store", "redis://" + f.addrs[n]}, f.args...)}
}

// start starts a sluice and waits until it uses the store: it accepts calls after a second without
// the store, which a busy machine may exceed.
func (f *fleet) start(t *testing.T, n int) *sluice.Sluice {
	t.Helper()
	s := suite.StartSluice(t, f.options(n))
	suite.Eventually(t, "the store is used", func() bool { return suite.Metrics(t, s).Sum("sluice_store_up") == 1 })
	return s
}

// restart starts a sluice that has ended again.
func (f *fleet) restart(t *testing.T, n int) {
	t.Helper()
	f.sluices[n].Store(f.start(t, n))
}

// decidedByBlocks returns the number of charges of a replica that blocks decided.
func (f *fleet) decidedByBlocks(t *testing.T, replica int) float64 {
	t.Helper()
	return suite.Metrics(t, f.sluices[replica].Load()).Sum("sluice_store_charges_total", `by="block"`)
}

// resetCounter resets the counters of a descriptor with the operators' API of a replica.
func (f *fleet) resetCounter(t *testing.T, replica int, domain, descriptor string) bool {
	t.Helper()
	c := &client.Debug{Addr: f.sluices[replica].Load().Addr("debug")}
	which := live.Selection{Domain: domain, Descriptor: descriptor}
	_, err := c.ResetCounters(t.Context(), which, true)
	return err == nil
}

func long(t *testing.T) bool {
	t.Helper()
	return effort.Level(t) >= effort.All
}

// times returns few, or with SLUICE_EFFORT=100 many.
func times(t *testing.T, few, many int) int {
	t.Helper()
	if long(t) {
		return many
	}
	return few
}
