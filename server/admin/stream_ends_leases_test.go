package admin_test

import (
	"slices"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestCostsMissingOfLongStreams has 20 requests that check a budget and hold a permit for 50
// seconds. Costs are missing only if the permits are returned without them.
func TestCostsMissingOfLongStreams(t *testing.T) {
	for _, charged := range []bool{false, true} {
		s := servertest.Service(t, answer.Settings{}, `{domain: d, descriptors: [
			{key: user, rate_limit: {unit: year, requests_per_unit: 1000000, count_refused: true}},
			{key: streams, rate_limit: {name: streams, unit: hour, requests_per_unit: 100, algorithm: concurrency}}]}`)
		a := newAPI(t, s, s.Metrics().Events.Watch(zap.NewNop()))
		now, x := time.Unix(0, int64(noon)), &answer.Exchange{}
		// call makes a request with hits of the budget, if they are not negative, and of the permit, and
		// returns the lease.
		call := func(hits int, permit float64) float64 {
			r := servertest.OneDescriptor("streams", "")
			r.Descriptors[0].HitsAddend = wrapperspb.UInt64(uint64(permit))
			if hits >= 0 {
				r.Descriptors = append(r.Descriptors, servertest.OneDescriptor("user", "al").GetDescriptors()...)
				r.Descriptors[1].HitsAddend = wrapperspb.UInt64(uint64(hits))
			}
			reply, _, err := s.Answer(limiter.Time(now.UnixNano()), time.Minute, x, servertest.Marshal(t, r))
			must.OK(t, err)
			var response rls.RateLimitResponse
			must.OK(t, proto.Unmarshal(slices.Clone(reply), &response))
			return response.GetDynamicMetadata().GetFields()["streams"].GetNumberValue()
		}
		// missing reports whether there is the condition after a number of seconds.
		missing := func(seconds int) bool {
			for range seconds {
				now = now.Add(time.Second)
				a.Tick(now)
			}
			active := s.Metrics().Conditions.Active(now)
			return slices.ContainsFunc(active, func(c telemetry.Condition) bool { return c.Code == telemetry.CostsMissing })
		}
		var leases []float64
		for range 20 {
			leases = append(leases, call(0, 1))
		}
		if missing(50) {
			t.Error("costs are missing while no stream has ended")
		}
		for _, lease := range leases {
			if charged {
				call(400, lease)
			} else {
				call(-1, lease)
			}
		}
		if missing(1) == charged {
			t.Errorf("after the streams: costs are missing: %t; they were charged: %t", !charged, charged)
		}
	}
}
