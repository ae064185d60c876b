package admin_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestCostsMissingAfterReload changes the limits of a rule, so that some of its counters end. No
// cost is missing for 90 seconds. Then no cost arrives, which is reported after a minute.
func TestCostsMissingAfterReload(t *testing.T) {
	const year, week = "{name: a, unit: year, requests_per_unit: 1000000000}", "{name: b, unit: week, requests_per_unit: 100000000}"
	for name, rules := range map[string][]string{
		"a limit is removed":             {"rate_limits: [" + year + ", " + week + "]", "rate_limits: [" + year + "]"},
		"a limit is renamed":             {"rate_limits: [" + year + "]", "rate_limits: [{name: c, unit: year, requests_per_unit: 1000000000}]"},
		"a newer limit remains":          {"rate_limits: [" + year + "]", "rate_limits: [" + year + ", " + week + "]", "rate_limits: [" + week + "]"},
		"counters of each user continue": {"detailed_metric: true, rate_limits: [" + year + "]", "detailed_metric: true, rate_limits: [" + year + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			compile := func(limits string) string { return "{domain: d, descriptors: [{key: user, " + limits + "}]}" }
			s := servertest.Service(t, answer.Settings{}, compile(rules[0]))
			a := newAPI(t, s, s.Metrics().Events.Watch(zap.NewNop()))
			now, x := time.Unix(0, int64(noon)), &answer.Exchange{}
			// second makes five checks of each user, each with its cost unless cost is 0.
			second := func(cost uint64, users ...string) {
				now = now.Add(time.Second)
				for i := range 5 * len(users) {
					for _, hits := range []uint64{0, cost}[:1+min(1, cost)] {
						r := servertest.OneDescriptor("user", users[i%len(users)])
						r.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
						if _, _, err := s.Answer(limiter.Time(now.UnixNano()), time.Minute, x, servertest.Marshal(t, r)); err != nil {
							t.Fatal(err)
						}
					}
				}
				a.Tick(now)
			}
			missing := func() (all []string) {
				for _, c := range a.State(now, admin.AllRules).Conditions {
					if c.Code == telemetry.CostsMissing {
						all = append(all, fmt.Sprint(c.Fields))
					}
				}
				return all
			}
			for i, limits := range rules {
				if i > 0 {
					if err := s.SetRules(limiter.Time(now.UnixNano()), servertest.Compile(t, compile(limits))); err != nil {
						t.Fatal(err)
					}
				}
				for range 50 {
					second(100, "alice", "bob")
				}
			}
			if err := s.SetRules(limiter.Time(now.UnixNano()), servertest.Compile(t, compile(rules[len(rules)-1]))); err != nil {
				t.Fatal(err)
			}
			for i := range 90 {
				second(100, "alice")
				if i == 80 {
					second(100, "bob")
				}
				if all := missing(); all != nil {
					t.Fatalf("%d s after the reload: %v, although each request has a cost", i, all)
				}
			}
			begin := 0
			for i := range 100 {
				if second(0, "alice"); missing() != nil && begin == 0 {
					begin = i
				}
			}
			if begin != 60 {
				t.Errorf("missing costs are reported after %d s, want 60", begin)
			}
		})
	}
}
