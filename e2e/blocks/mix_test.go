package blocks_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

func token(n int, window time.Duration, burst int) limit {
	return limit{algorithm: "token_bucket", n: n, window: window, size: burst}
}

func leaky(n int, window time.Duration, slack int) limit {
	return limit{algorithm: "leaky_bucket", n: n, window: window, size: slack + 1}
}

func sliding(n int, window time.Duration, parts int) limit {
	return limit{algorithm: "sliding_window", n: n, window: window, parts: parts}
}

// calendar returns a fixed window of a calendar, or a sliding window with the given number of parts.
func calendar(n int, unit string, zone zone, parts int) limit {
	l := limit{algorithm: "fixed_window", n: n, window: 24 * time.Hour, parts: parts, unit: unit, zone: zone}
	if parts > 0 {
		l.algorithm = "sliding_window"
	}
	return l
}

func fixed(n int, window time.Duration) limit {
	return limit{algorithm: "fixed_window", n: n, window: window}
}

// with returns the limit with further fields in YAML.
func (l limit) with(fields string) limit {
	l.fields += ", " + fields
	return l
}

// asCandidate returns the limit with shadow: true.
func (l limit) asCandidate() limit {
	l.candidate = true
	return l
}

// clients have limits of all algorithms that use blocks, of several sizes.
var clients = []mixClient{
	{name: "bucket", descriptors: [][]limit{{token(1000, time.Second, 1000)}}},
	{name: "slow", descriptors: [][]limit{{token(100, time.Second, 2000)}}},
	{name: "small", descriptors: [][]limit{{token(40, 2*time.Second, 40)}}},
	{name: "large", descriptors: [][]limit{{token(10_000, time.Second, 30_000)}}},
	{name: "quick", descriptors: [][]limit{{token(5000, time.Second, 1000)}}}, // too fast for blocks
	{name: "leaky", descriptors: [][]limit{{leaky(500, time.Second, 999)}}},
	{name: "sliding", descriptors: [][]limit{{sliding(2000, 4*time.Second, 10)}}},
	{name: "halves", descriptors: [][]limit{{sliding(1000, 2*time.Second, 2).with("count_refused: true")}}},
	{name: "fixed", descriptors: [][]limit{{fixed(2000, time.Second)}}},
	{name: "whole", descriptors: [][]limit{{sliding(500, time.Second, 1)}}},
	{name: "list", descriptors: [][]limit{{token(600, time.Second, 900), sliding(2000, 4*time.Second, 8), fixed(1500, 2*time.Second)}}},
	{name: "pair", descriptors: [][]limit{{token(600, time.Second, 900)}, {leaky(400, time.Second, 799), fixed(1000, time.Second)}}},
	{name: "group", together: true, descriptors: [][]limit{{token(600, time.Second, 900)}, {sliding(2000, 4*time.Second, 4)}}},
	{name: "candidate", descriptors: [][]limit{{token(600, time.Second, 900), sliding(400, 2*time.Second, 4).asCandidate()}}},
}

// mix is a fleet whose clients have limits of several algorithms.
type mix struct {
	*fleet

	base     time.Time
	clients  []mixClient
	counters [][]*counter // of a client
}

func startMix(t *testing.T, store *storetest.Server, addrs []string, all []mixClient, timeout time.Duration, args ...string) *mix {
	t.Helper()
	f := startSluices(t, store, addrs, clientRules(all), timeout, args...)
	m := &mix{base: time.Now(), clients: all, fleet: f}
	for _, c := range all {
		var counters []*counter
		for i, limits := range c.descriptors {
			for _, l := range limits {
				counters = append(counters, &counter{limit: l, domain: c.domain(), descriptor: fmt.Sprintf("k%d=%s", i, c.name)})
			}
		}
		m.counters = append(m.counters, counters)
	}
	return m
}

// startPatientMix starts a store, and a mix in which a busy machine causes no outage.
func startPatientMix(t *testing.T, all []mixClient) *mix {
	t.Helper()
	store := storetest.Start(t)
	return startMix(t, store, direct(store), all, suite.Patience, patient...)
}

// now returns the time of the ledgers.
func (m *mix) now() int64 { return m.at(time.Now()) }

// at returns a time of the ledgers.
func (m *mix) at(t time.Time) int64 { return m.base.UnixNano() + int64(t.Sub(m.base)) }

// send sends a request of a client to a replica, and records it.
func (m *mix) send(ctx context.Context, replica, which, hits int) (admitted bool) {
	return m.sendTo(ctx, replica, which, hits, func() int64 { return 0 })
}

// sendTo is send to a replica that decides the request no earlier than the time that a function
// returns after the reply.
func (m *mix) sendTo(ctx context.Context, replica, which, hits int, earliest func() int64) (admitted bool) {
	timeout := m.timeout
	if m.hasty && rand.IntN(4) == 0 {
		timeout = time.Duration(rand.Int64N(int64(m.timeout / 8)))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := m.clients[which]
	request := &rlsv3.RateLimitRequest{Domain: c.domain(), HitsAddend: uint32(hits)}
	for i := range c.descriptors {
		request.Descriptors = append(request.Descriptors, &commonv3.RateLimitDescriptor{
			Entries:    []*commonv3.RateLimitDescriptor_Entry{{Key: fmt.Sprintf("k%d", i), Value: c.name}},
			HitsAddend: wrapperspb.UInt64(uint64(hits)),
		})
	}
	s := span{from: m.now(), hits: hits}
	reply, err := m.services[replica].ShouldRateLimit(ctx, request)
	s.from, s.to = max(s.from, earliest()), m.now()
	if err != nil || len(reply.GetStatuses()) != len(c.descriptors) {
		m.failed.Add(1)
		return false
	}
	m.requests.Add(1)
	admitted = reply.GetOverallCode() == rlsv3.RateLimitResponse_OK
	next := 0
	for i, limits := range c.descriptors {
		// Without all_or_nothing, each descriptor is charged if its own limits admit the request.
		ok := reply.GetStatuses()[i].GetCode() == rlsv3.RateLimitResponse_OK
		for range limits {
			if ok && (admitted || !c.together) {
				m.counters[which][next].record(s)
			}
			next++
		}
	}
	return admitted
}

// hits returns a random number of hits, with which about the given number of requests use up a
// client's smallest limit.
func (m *mix) hits(which, requests int) int {
	least := 1 << 30
	for _, c := range m.counters[which] {
		if !c.candidate {
			least = min(least, c.capacity())
		}
	}
	return 1 + rand.IntN(1+2*least/requests)
}

// wait waits for about the given time, whose length no result depends on.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// together calls a function for several clients at the same time, and waits.
func together(which []int, act func(which int)) {
	var all sync.WaitGroup
	for _, one := range which {
		all.Go(func() { act(one) })
	}
	all.Wait()
}

// trickle sends requests of a client to a replica for some time, at a demand that fills no limit.
func (m *mix) trickle(ctx context.Context, replica, which int, d time.Duration) {
	rate := math.Inf(1)
	for _, c := range m.counters[which] {
		if !c.candidate && c.window < time.Hour {
			rate = min(rate, float64(c.n)/c.window.Seconds())
		}
	}
	if math.IsInf(rate, 1) {
		rate = 500
	}
	rate *= 0.15 + 0.5*rand.Float64()
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		hits := m.hits(which, 150)
		m.send(ctx, replica, which, hits)
		wait(ctx, time.Duration(float64(hits)/rate*float64(time.Second)))
	}
}

// burst sends requests of a client to the given replicas, up to twice as many hits as its largest
// limit allows at once, or until most requests are denied.
func (m *mix) burst(ctx context.Context, which int, replicas ...int) {
	var sent atomic.Int64
	most := int64(0)
	for _, c := range m.counters[which] {
		most = max(most, int64(c.capacity()))
	}
	var senders sync.WaitGroup
	for _, replica := range replicas {
		for range 4 {
			requests := []int{12, 150}[rand.IntN(2)] // most blocks have too few hits for the larger ones
			senders.Go(func() {
				for denied := 0; denied < 4 && sent.Load() < 2*most && ctx.Err() == nil; {
					hits := m.hits(which, requests)
					sent.Add(int64(hits))
					if !m.send(ctx, replica, which, hits) {
						denied++
					}
				}
			})
		}
	}
	senders.Wait()
}

// verify checks all limits, with the bounds multiplied by factor.
func (m *mix) verify(t *testing.T, factor int) {
	t.Helper()
	for which, all := range m.counters {
		for _, c := range all {
			if bad := c.exceeded(factor); bad != "" && !c.candidate {
				t.Errorf("%s, %s: %s", m.clients[which].name, c.yaml(), bad)
			}
		}
	}
}
