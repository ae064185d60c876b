package denials_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// TestModelWithTwoReplicas is [TestModel] with two replicas that share a store, in simulated time.
func TestModelWithTwoReplicas(t *testing.T) {
	t.Parallel()
	from, to := seeds(t, 2)
	for seed := from; seed <= to && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			host := luahost.NewServer()
			runModel(t, seed, map[string]int{}, world{
				start: func(s answer.Settings, rules string) []*answer.Service {
					return []*answer.Service{replica(t, host, s, rules), replica(t, host, s, rules)}
				},
				advance: func(d time.Duration) int64 {
					time.Sleep(min(d, 13*time.Second)) // the connections are checked each second
					return time.Now().UnixNano()
				},
			})
		})
	}
}

// replica returns a service that counts in a store.
func replica(t *testing.T, host *luahost.Server, settings answer.Settings, rules string) *answer.Service {
	t.Helper()
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	must.OK(t, err)
	shared, err := store.New(store.Options{
		Table: table, Timeout: time.Minute, Jitter: -1, Fallback: store.Error,
		Server: redis.Server{Network: "tcp", Address: "store:1", DialContext: func(context.Context, string, string) (net.Conn, error) {
			mine, its := net.Pipe()
			go host.ServeConn(its)
			return mine, nil
		}},
	})
	must.OK(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		shared.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	for !shared.Up() {
		time.Sleep(time.Millisecond)
	}
	settings.Decider, settings.Namer = shared, descriptors.NewNamer("", nil)
	return servertest.ServiceOn(t, table, settings, rules)
}
