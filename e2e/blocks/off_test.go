package blocks_test

import (
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// decided returns how many charges of all replicas were decided by a block, or by the store.
func (f *fleet) decided(t *testing.T, by string) (n int) {
	t.Helper()
	for _, s := range f.sluices {
		n += int(suite.Metrics(t, s.Load()).Sum("sluice_store_charges_total", `by="`+by+`"`))
	}
	return n
}

// used looks up the hits of a tenant in the store.
func (f *fleet) used(t *testing.T, which int) int {
	t.Helper()
	reply, err := f.services[0].ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries:    []*commonv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: f.tenants[which].name}},
		HitsAddend: wrapperspb.UInt64(0),
	}}})
	must.OK(t, err)
	return f.tenants[which].limit - int(reply.GetStatuses()[0].GetLimitRemaining())
}

// TestBlocksOff has a counter with blocks, and another one with blocks: off. The store decides each
// request on the second one. Then a reload sets blocks: off for the first one: its counter stays, and
// the unused hits of its blocks are returned.
func TestBlocksOff(t *testing.T) {
	t.Parallel()
	window.AwaitHour(t)
	const auto, off = 0, 1
	both := []tenant{
		{name: "auto", limit: 1_000_000_000, window: time.Hour, fields: ", blocks: auto"},
		{name: "off", limit: 1_000_000_000, window: time.Hour, fields: ", blocks: off"},
	}
	store := storetest.Start(t)
	f := startFleet(t, store, direct(store)[:2], both, suite.Patience, patient...)
	send := func(which, requests int) {
		t.Helper()
		for n := range requests {
			if admitted, _ := f.request(t.Context(), n%len(f.services), which, 1); !admitted {
				t.Fatalf("a request of %s was not admitted", both[which].name)
			}
		}
	}
	storeDecides := func(which int) {
		t.Helper()
		const requests = 1000
		block, total := f.decided(t, "block"), f.decided(t, "store")
		send(which, requests)
		if n := f.decided(t, "block") - block; n != 0 {
			t.Errorf("%d requests of %s were decided from blocks", n, both[which].name)
		}
		if n := f.decided(t, "store") - total; n != requests {
			t.Errorf("the store decided %d requests of %s, want %d", n, both[which].name, requests)
		}
	}
	awaitBlocks := func() {
		t.Helper()
		before := f.decided(t, "block")
		suite.Eventually(t, "requests are decided from blocks", func() bool {
			send(auto, 100)
			return f.decided(t, "block") >= before+500
		})
	}

	awaitBlocks()
	storeDecides(off)
	awaitBlocks()
	both[auto].fields = both[off].fields
	suite.Replace(t, f.config, rules(both, 1))
	suite.Eventually(t, "all replicas have reloaded", func() bool {
		for _, s := range f.sluices {
			if active := suite.Get(t, "http://"+s.Load().Addr("debug")+"/rlconfig"); strings.Count(string(active), "blocks: off") != len(both) {
				return false
			}
		}
		return true
	})
	storeDecides(auto)
	for which, l := range f.ledgers {
		admitted, _ := l.total()
		suite.Eventually(t, "all unused hits are returned, and no others", func() bool { return f.used(t, which) == admitted })
	}
}
