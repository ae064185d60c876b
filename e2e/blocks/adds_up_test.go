package blocks_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestBlocksAddUp compares the reports of blocks with each other and with the store, after each
// event that ends blocks.
func TestBlocksAddUp(t *testing.T) {
	t.Parallel()
	const limit = 1_000_000_000
	fixed := tenant{name: "fixed", limit: limit, window: year}
	sliding := tenant{name: "sliding", limit: limit, window: year, fields: ", algorithm: sliding_window"}
	for name, all := range map[string][]tenant{
		"windows":       {fixed, sliding, {name: "half", limit: limit, window: year / 2, fields: ", count_refused: false"}},
		"with a bucket": {fixed, sliding, {name: "bucket", limit: 1000, window: time.Second, fields: ", algorithm: token_bucket, burst: 1000000"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := storetest.Start(t)
			a := &accounts{windows: name == "windows"}
			var addrs []string
			for range 3 {
				l := startLink(t, store.Addr)
				a.links, addrs = append(a.links, l), append(addrs, l.addr)
			}
			a.fleet = startFleet(t, store, addrs, all, suite.Patience, patient...)
			events := map[string]func(t *testing.T, replica, tenant int){
				"requests":          func(*testing.T, int, int) {},
				"a lost connection": a.cut,
				"SIGTERM":           a.end,
				"a change of rules": a.switchOff,
			}
			if a.windows {
				events["a kill"], events["a reset"] = a.kill, a.resetOne
			}
			for range times(t, 1, 15) {
				for event, act := range events {
					a.heat(t)
					act(t, rand.IntN(len(a.sluices)), rand.IntN(len(all)))
					a.balance(t, event)
				}
			}
			if n := a.failed.Load(); n > 0 {
				t.Errorf("%d requests failed", n)
			}
		})
	}
}

// heat sends requests until each replica has decided some of them from blocks. Then replicas still
// charge and return hits.
func (a *accounts) heat(t *testing.T) {
	t.Helper()
	var stopped atomic.Bool
	var clients sync.WaitGroup
	for replica := range a.sluices {
		clients.Go(func() {
			for !stopped.Load() {
				if admitted, _ := a.request(context.WithoutCancel(t.Context()), replica, rand.IntN(len(a.tenants)), 1); !admitted {
					t.Error("a request was not admitted")
					return
				}
				wait(t.Context(), time.Duration(rand.IntN(4))*time.Millisecond)
			}
		})
	}
	for replica := range a.sluices {
		first := a.account(t, replica).used
		suite.Eventually(t, "requests are decided from blocks", func() bool { return a.account(t, replica).used > first+100 })
	}
	stopped.Store(true)
	clients.Wait()
}

// remaining sends a request and returns the remaining hits in its reply.
func (a *accounts) remaining(t *testing.T, replica, tenant int) int {
	t.Helper()
	start := time.Now()
	reply, err := a.services[replica].ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: a.tenants[tenant].name}},
	}}})
	must.OK(t, err)
	a.ledgers[tenant].record(start, time.Now(), 1, true)
	return int(reply.GetStatuses()[0].GetLimitRemaining())
}

// cut closes the connection of a replica, and waits until it is back.
func (a *accounts) cut(t *testing.T, replica, _ int) {
	t.Helper()
	outages := func() int { return strings.Count(a.sluices[replica].Load().Log(), "store_unavailable") }
	before := outages()
	a.links[replica].cut()
	suite.Eventually(t, "the log has the begin and the end of an outage", func() bool { return outages() >= before+2 })
}

// end ends a replica with SIGTERM and starts it again. Unused hits of windows are returned, so the
// store has no more hits than before.
func (a *accounts) end(t *testing.T, replica, _ int) {
	t.Helper()
	last := a.account(t, replica)
	_, err := a.sluices[replica].Load().Stop(t.Context())
	must.OK(t, err)
	a.ended = a.ended.add(account{lost: last.lost, synced: last.synced})
	a.restart(t, replica)
}

// kill kills a replica and starts it again. Its unused hits stay charged.
func (a *accounts) kill(t *testing.T, replica, _ int) {
	t.Helper()
	a.balance(t, "requests")
	last := a.account(t, replica)
	a.sluices[replica].Load().Kill()
	a.ended = a.ended.add(account{lost: last.lost, synced: last.synced})
	a.restart(t, replica)
	if more := a.settle(t); more < 0 || more > last.unused {
		t.Errorf("a killed replica left %d hits in the store, and had %d unused ones", more, last.unused)
	}
}

// resetOne resets a counter at a replica, which drops its block. The hits that others have unused are
// admitted in addition to the new count, or returned to it.
func (a *accounts) resetOne(t *testing.T, replica, tenant int) {
	t.Helper()
	a.balance(t, "requests")
	_, unused := a.counter(t, tenant)
	admitted, _ := a.ledgers[tenant].total()
	if !a.reset(t, replica, tenant) {
		t.Fatal("the reset failed")
	}
	if count, now := a.counter(t, tenant); count != 0 || now[replica] != 0 {
		t.Errorf("after a reset the count is %d, and the replica has %d unused hits", count, now[replica])
	}
	a.heat(t)
	a.settle(t)
	count, _ := a.counter(t, tenant)
	now, _ := a.ledgers[tenant].total()
	others := 0
	for n, one := range unused {
		if n != replica {
			others += one
		}
	}
	if since := now - admitted; count > since || count < since-others {
		t.Errorf("the count after a reset is %d, with %d admitted hits, and %d unused ones before", count, since, others)
	}
}

// reload sets the fields of a tenant, and waits until all replicas use them.
func (a *accounts) reload(t *testing.T, tenant int, fields string) {
	t.Helper()
	a.tenants[tenant].fields = fields
	text := rules(a.tenants, 1)
	suite.Replace(t, a.config, text)
	suite.Eventually(t, "all replicas have reloaded", func() bool {
		for _, s := range a.sluices {
			active := string(suite.Get(t, "http://"+s.Load().Addr("debug")+"/rlconfig"))
			if strings.Contains(active, "blocks: off") != strings.Contains(text, "blocks: off") {
				return false
			}
		}
		return true
	})
}

// switchOff sets blocks: off for a tenant whose counter has blocks, and back. In between, its unused
// hits are returned, it gets none, and the remaining hits in replies are exact.
func (a *accounts) switchOff(t *testing.T, _, tenant int) {
	t.Helper()
	fields := a.tenants[tenant].fields
	a.reload(t, tenant, fields+", blocks: off")
	suite.Eventually(t, "the unused hits are returned or lost", func() bool {
		_, unused := a.counter(t, tenant)
		return max(unused[0], unused[1], unused[2]) == 0
	})
	a.balance(t, "a reload to blocks: off")
	a.heat(t)
	count, unused := a.counter(t, tenant)
	if max(unused[0], unused[1], unused[2]) > 0 {
		t.Errorf("a tenant with blocks: off has unused hits: %v", unused)
	}
	for n := 1; a.windows && n <= 20; n++ {
		if left, want := a.remaining(t, n%len(a.sluices), tenant), a.tenants[tenant].limit-count-n; left != want {
			t.Errorf("a reply has %d remaining hits, want %d", left, want)
		}
	}
	a.balance(t, "requests with blocks: off")
	a.reload(t, tenant, fields)
}

// TestRemainingOfOneReplica has one replica, so replies from blocks count no unused hits as used.
// Replies of the store count those of the replica, too. A hit that the store decides at the time at
// which a block is charged is missing in the replies from that block.
func TestRemainingOfOneReplica(t *testing.T) {
	t.Parallel()
	const limit = 1_000_000
	both := []tenant{{name: "a", limit: limit, window: year}, {name: "b", limit: limit, window: year, fields: ", algorithm: sliding_window"}}
	store := storetest.Start(t)
	a := &accounts{fleet: startFleet(t, store, direct(store)[:1], both, suite.Patience, patient...)}
	sent, exact := 0, 0
	suite.Eventually(t, "requests are decided from blocks, with the exact count", func() bool {
		block := a.decided(t, "block")
		for range 100 {
			sent++
			for tenant := range both {
				left := a.remaining(t, 0, tenant)
				if left == limit-sent && block > 0 {
					exact++
				}
				if left > limit-sent+1 {
					t.Fatalf("%d hits remain after %d of %s", left, sent, both[tenant].name)
				}
			}
		}
		return block > 2000 && exact > 1000
	})
}
