package answer

import (
	"testing"
	"testing/synctest"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestCostsDue counts the requests whose cost follows at the end of their streams, the costs, and
// the leases that were returned.
func TestCostsDue(t *testing.T) {
	const (
		lease = -1     // the lease of the first call
		start = 1 << 8 // no hits
	)
	for name, tt := range map[string]struct {
		limit string
		calls [][]int64 // hits of the descriptors of each call; negative hits are a refund
		want  telemetry.StreamEnds
	}{
		"checks":                              {"{unit: hour, requests_per_unit: 10}", [][]int64{{0}, {0}, {3}}, telemetry.StreamEnds{CostsDue: 2, CostsReceived: 1}},
		"no checks":                           {"{unit: hour, requests_per_unit: 10}", [][]int64{{1}, {2}, {-2}}, telemetry.StreamEnds{}},
		"denied checks":                       {"{unit: hour, requests_per_unit: 1, count_refused: true}", [][]int64{{5}, {0}, {0}}, telemetry.StreamEnds{}},
		"checks of failures":                  {"{unit: hour, requests_per_unit: 10, penalty: [1m]}", [][]int64{{0}, {0}}, telemetry.StreamEnds{}},
		"checks of permits":                   {"{unit: hour, requests_per_unit: 10, algorithm: concurrency, name: n}", [][]int64{{0}}, telemetry.StreamEnds{}},
		"a returned permit":                   {"{unit: hour, requests_per_unit: 10, algorithm: concurrency, name: n}", [][]int64{{1}, {lease}}, telemetry.StreamEnds{Returned: 1}},
		"a permit that is returned twice":     {"{unit: hour, requests_per_unit: 10, algorithm: concurrency, name: n}", [][]int64{{1}, {lease}, {lease}}, telemetry.StreamEnds{Returned: 1}},
		"a reservation without its cost":      {"{unit: hour, requests_per_unit: 10, name: n, reserve: {amount: 2}}", [][]int64{{start}, {lease}}, telemetry.StreamEnds{Returned: 1, CostsDue: 1}},
		"a reservation that has not ended":    {"{unit: hour, requests_per_unit: 10, name: n, reserve: {amount: 2}}", [][]int64{{start}}, telemetry.StreamEnds{}},
		"a reservation with its cost":         {"{unit: hour, requests_per_unit: 10, name: n, reserve: {amount: 2}}", [][]int64{{start}, {lease, 3}}, telemetry.StreamEnds{Returned: 1, CostsDue: 1, CostsReceived: 1}},
		"denied costs":                        {"{unit: hour, requests_per_unit: 10}", [][]int64{{0}, {11}}, telemetry.StreamEnds{CostsDue: 1, CostsReceived: 1}},
		"costs beyond a limit in shadow mode": {"{unit: hour, requests_per_unit: 1, count_refused: false}, shadow_mode: true", [][]int64{{0}, {1}, {0}, {5}}, telemetry.StreamEnds{CostsDue: 2, CostsReceived: 2}},
		"a denied reservation":                {"{unit: hour, requests_per_unit: 3, name: n, reserve: {amount: 2}}", [][]int64{{start}, {lease}, {start}, {start}}, telemetry.StreamEnds{Returned: 1, CostsDue: 1}},
		"costs without a lease":               {"{unit: hour, requests_per_unit: 9, name: n, reserve: {amount: 2}}", [][]int64{{0}, {1}, {2}}, telemetry.StreamEnds{}},
		"a refund":                            {"{unit: hour, requests_per_unit: 10}", [][]int64{{0}, {-2}}, telemetry.StreamEnds{CostsDue: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := service(t, Settings{Clock: clock.New()}, "{domain: d, descriptors: [{key: k, rate_limit: "+tt.limit+"}]}")
			var held uint64
			for _, call := range tt.calls {
				request := &rls.RateLimitRequest{Domain: "d"}
				for _, hits := range call {
					d := &rlcommon.RateLimitDescriptor{Entries: simpleRequest().GetDescriptors()[0].GetEntries(), IsNegativeHits: hits < 0}
					switch hits {
					case start:
					case lease:
						d.HitsAddend = wrapperspb.UInt64(held)
					default:
						d.HitsAddend = wrapperspb.UInt64(uint64(max(hits, -hits)))
					}
					request.Descriptors = append(request.Descriptors, d)
				}
				x := &Exchange{}
				if _, _, err := s.Answer(s.now(), NoDeadline, x, marshal(t, request)); err != nil {
					t.Fatal(err)
				}
				if len(x.plan.Batch.Decisions) > 0 && held == 0 && x.plan.Batch.HasLease() {
					held = x.plan.Batch.Lease(0)
				}
			}
			r, err := s.Active()
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Counters.Get(0).StreamEnds(); got != tt.want {
				t.Errorf("%s: %+v, want %+v", name, got, tt.want)
			}
		})
	}
}
