//go:build more

package store

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A node of a cluster answers at the URL of a single server, or the reverse: the store stays
// unavailable for that one reason, and recovers once the server suits the URL.
func TestServerOfAnotherMode(t *testing.T) {
	t.Parallel()
	node, single := storetest.StartCluster(t, 1, false)[0], storetest.Start(t)
	for name, tt := range map[string]struct {
		to           redis.Server
		wrong, right *storetest.Server
	}{
		"redis://":         {redis.Server{Network: "tcp", Address: "x:1"}, node, single},
		"redis+cluster://": {redis.Server{Nodes: []string{"x:1"}}, single, node},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var address atomic.Pointer[string]
			address.Store(&tt.wrong.Addr)
			tt.to.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, *address.Load())
			}
			var logged, recovered atomic.Int64
			o := &recorder{}
			s := runStore(t, Options{Server: tt.to, Observer: o, Log: Log{
				Unavailable: func(string, redis.Kind, error, string) { logged.Add(1) },
				Recovered:   func(string, time.Duration, Synced) { recovered.Add(1) },
			}})
			if s.Await(t.Context()) {
				t.Fatal("Await returned true")
			}
			if err := s.WrongMode(); err == nil || !strings.Contains(err.Error(), redis.Mode.Remedy()) || !strings.Contains(err.Error(), "cluster") {
				t.Fatalf("WrongMode is %v", err)
			}
			storetest.Eventually(t, "further attempts", func() bool { return o.failuresOf(redis.Mode) > 3 })
			if logged.Load() != 1 || recovered.Load() != 0 {
				t.Errorf("logged %d conditions and %d ends, want one and none", logged.Load(), recovered.Load())
			}
			address.Store(&tt.right.Addr)
			storetest.Eventually(t, "up", s.Up)
			storetest.Eventually(t, "the end is logged", func() bool { return recovered.Load() > 0 })
		})
	}
}
