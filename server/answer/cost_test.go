package answer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
)

// TestCostsOfSeveralLeases returns two leases of one counter in one request, each with a cost, in
// each order. The metric contains the sum of the costs, and each cost is learned once.
func TestCostsOfSeveralLeases(t *testing.T) {
	for _, test := range []struct {
		order string // order of leases and costs; s is a stale lease
		cost  float64
		pairs string // expected costs of the leases, and whether they are known
	}{
		{"l7l9", 16, "7 true 9 true "},
		{"ll79", 16, "7 true 9 true "},
		{"79ll", 16, "7 true 9 true "},
		{"7l9l", 16, "7 true 9 true "},
		{"sl7", 7, "7 true "},
		{"s7l9", 16, "16 true "},
		{"7l98", 24, "24 true "},
		{"ll789", 24, "7 true 17 true "},
		{"l07", 7, "7 true "},
		{"l7s", 7, "7 true "},
		{"ll7", 7 + 60, "7 true 0 false "},
	} {
		s := service(t, Settings{Clock: clock.New()}, "{domain: d, descriptors: [{key: k, rate_limit: {name: tokens, requests_per_unit: 2000, unit: hour, reserve: {p90: true, first: 60, unsettled: keep}}}]}")
		request := &rls.RateLimitRequest{Domain: "d"}
		held := 0.0
		for _, c := range test.order {
			hits := uint64(c - '0')
			switch c {
			case 'l':
				x := &Exchange{}
				if _, _, err := s.Answer(s.now(), time.Minute, x, marshal(t, oneDescriptor(0, "k", "v"))); err != nil {
					t.Fatal(err)
				}
				hits, held = x.plan.Batch.Lease(0), held+60
			case 's':
				hits = limiter.LastLease
			}
			request.Descriptors = append(request.Descriptors, &rlcommon.RateLimitDescriptor{
				Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")}, HitsAddend: wrapperspb.UInt64(hits),
			})
		}
		x := &Exchange{}
		if _, _, err := s.Answer(s.now(), time.Minute, x, marshal(t, request)); err != nil {
			t.Fatal(err)
		}
		if got := gathered(t, s, "sluice_reservation_hits_total"); got != held+held+test.cost {
			t.Errorf("%s: reserved, settled and cost are %v in all, want %v, %v and %v", test.order, got, held, held, test.cost)
		}
		var costs strings.Builder
		for i := range x.plan.Matches {
			if x.plan.Batch.Charges[i].Refund && x.plan.Batch.Decisions[i].Charged > 0 {
				cost, known := x.plan.LeaseCost(i)
				fmt.Fprintf(&costs, "%d %v ", cost, known)
			}
		}
		if costs.String() != test.pairs {
			t.Errorf("%s: the costs are %s, want %s", test.order, costs.String(), test.pairs)
		}
	}
}
