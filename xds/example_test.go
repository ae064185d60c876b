package xds_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/xds"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// This example receives rules from a management server for tests. A response is
// activated completely or not at all.
func ExampleSource() {
	server, err := adstest.Start(adstest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Stop()
	if err := server.Set("1", &pb.RateLimitConfig{Name: "shop", Domain: "shop", Descriptors: []*pb.RateLimitDescriptor{
		{Key: "user", RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_MINUTE, RequestsPerUnit: 60}},
	}}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	rules, err := xds.NewSource(xds.Options{
		Target: server.Addr(), NodeID: "default", MaxMessageBytes: 16 << 20,
		RetryInterval: time.Second, Backoff: xds.Backoff{Initial: time.Second, Max: time.Second, Factor: 1},
		OnLoad: func(u source.Update) error {
			return u.Set.Dump(os.Stdout) // an error rejects the response
		},
		OnAnswered:     func(bool) { stop() }, // one response is enough for an example
		OnConnected:    func() {},
		OnDisconnected: func(error, time.Duration) {},
		OnIgnored:      func(string) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	rules.Run(ctx)
	// Output:
	// shop.user: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false
}
