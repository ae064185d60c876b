package blocks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// refunding are clients that refund hits.
var refunding = []mixClient{
	{name: "bucket", descriptors: [][]limit{{token(1000, time.Second, 1500)}}},
	{name: "slow", descriptors: [][]limit{{token(300, time.Second, 600)}}},
	{name: "leaky", descriptors: [][]limit{{leaky(1000, time.Second, 999)}}},
	{name: "sliding", descriptors: [][]limit{{sliding(4000, 4*time.Second, 8)}}},
	{name: "fixed", descriptors: [][]limit{{fixed(2000, 2*time.Second)}}},
	{name: "list", descriptors: [][]limit{{token(1000, time.Second, 1500), fixed(4000, 2*time.Second)}}},
	{name: "group", together: true, descriptors: [][]limit{{token(1000, time.Second, 1500)}, {sliding(6000, 4*time.Second, 8)}}},
}

// refund returns hits of a client at a replica.
func (m *mix) refund(ctx context.Context, t *testing.T, replica, which, hits int) {
	t.Helper()
	c := m.clients[which]
	request := &rlsv3.RateLimitRequest{Domain: c.domain()}
	for i := range c.descriptors {
		request.Descriptors = append(request.Descriptors, &commonv3.RateLimitDescriptor{
			Entries:        []*commonv3.RateLimitDescriptor_Entry{{Key: fmt.Sprintf("k%d", i), Value: c.name}},
			HitsAddend:     wrapperspb.UInt64(uint64(hits)),
			IsNegativeHits: true,
		})
	}
	s := span{from: m.now(), hits: hits}
	_, err := m.services[replica].ShouldRateLimit(ctx, request)
	must.OK(t, err)
	s.to = m.now()
	for _, one := range m.counters[which] {
		one.mu.Lock()
		one.refunds = append(one.refunds, s)
		one.mu.Unlock()
	}
}

// withRefunds returns a description of an interval that exceeds its bound, or "". An interval may have the
// hits of each refund in addition, if it begins at most the given time after it.
func (c *counter) withRefunds(until time.Duration) string {
	c.mu.Lock()
	c.extra = nil
	for _, r := range c.refunds {
		c.extra = append(c.extra, span{r.from, r.to + int64(until), r.hits})
	}
	c.mu.Unlock()
	return c.exceeded(1)
}

// TestRefundsExceedByRefundedHits refunds hits while replicas have blocks: fewer than those that a
// block has, or more. Without blocks an interval may have as many more hits as were
// refunded in it. With blocks the store takes them off a count that includes unused hits, so an
// interval may also have those of refunds before it, until these blocks end.
func TestRefundsExceedByRefundedHits(t *testing.T) {
	t.Parallel()
	m := startPatientMix(t, refunding)
	ctx, all := t.Context(), m.some(len(refunding))
	for range times(t, 2, 60) {
		together(all, func(which int) {
			first := rand.IntN(len(m.services))
			others := []int{(first + 1) % len(m.services), (first + 2) % len(m.services)}
			// The bucket is nearly full, and one replica has a block.
			m.trickle(ctx, first, which, between(700*time.Millisecond, 1500*time.Millisecond))
			for range 1 + rand.IntN(3) {
				switch n := m.hits(which, 6); rand.IntN(3) { // a block has up to a third of the limit
				case 0: // at once
					m.refund(ctx, t, others[0], which, 1+n)
				case 1: // in parts
					for range 8 {
						m.refund(ctx, t, rand.IntN(len(m.services)), which, 1+n/8)
					}
				case 2:
					m.refund(ctx, t, first, which, 1+rand.IntN(1+n))
				}
				if rand.IntN(2) == 0 {
					m.trickle(ctx, first, which, between(10*time.Millisecond, 100*time.Millisecond))
				}
			}
			if rand.IntN(3) == 0 { // unused hits of windows are returned
				wait(ctx, between(200*time.Millisecond, 500*time.Millisecond))
			}
			if rand.IntN(2) == 0 {
				m.burst(ctx, which, others...)
				m.burst(ctx, which, first)
			}
			m.burst(ctx, which, 0, 1, 2)
			if rand.IntN(2) == 0 { // used hits of an empty bucket
				m.refund(ctx, t, rand.IntN(len(m.services)), which, 1+rand.IntN(200))
				m.burst(ctx, which, 0, 1, 2)
			}
			wait(ctx, between(time.Second, 3*time.Second)) // the bucket fills
		})
	}
	for which, counters := range m.counters {
		for _, c := range counters {
			if bad := c.withRefunds(c.refundLife()); bad != "" {
				t.Errorf("%s, %s: %s", refunding[which].name, c.yaml(), bad)
			}
		}
	}
	if n := m.failed.Load(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
}

// refundLife returns for how long after a refund blocks from before it may be used, or returned.
func (l limit) refundLife() time.Duration {
	if l.bucket() || l.parts > 0 {
		return l.blockLife()
	}
	return 0 // an interval has complete windows
}
