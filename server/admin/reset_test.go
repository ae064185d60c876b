package admin_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// namedDecider decides by a table and records the names of charged and reset counters.
type namedDecider struct {
	*limiter.Table

	charged map[identity.ID]string
	reset   []string
}

func (d *namedDecider) Decide(now limiter.Time, b *limiter.Batch, names [][]byte, _ limiter.Waiter) (done bool, err error) {
	for i, c := range b.Charges {
		d.charged[c.ID] = string(names[i])
	}
	d.Table.Decide(now, b)
	return true, nil
}

func (d *namedDecider) Reset(_ context.Context, now limiter.Time, b *limiter.Batch, names [][]byte, i int) (used uint64, err error) {
	d.reset = append(d.reset, string(names[i]))
	return d.Table.Reset(now, b, i), nil
}

func (d *namedDecider) Cancel(now limiter.Time, b *limiter.Batch, _ [][]byte) { d.Table.Cancel(now, b) }
func (*namedDecider) Up() bool                                                { return true }

// TestResetOfDeniedKeys resets keys whose policy is that of a rule, of a table row and of an
// override. Each is then admitted as with a new counter, and a store gets the counter's name.
func TestResetOfDeniedKeys(t *testing.T) {
	requests := map[string]*rls.RateLimitRequest{
		"rule": servertest.OneDescriptor("customer", "nobody"), "row": servertest.OneDescriptor("customer", "acme"), "override": servertest.OneDescriptor("customer", "acme"),
	}
	requests["override"].Descriptors[0].Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_MINUTE}
	for _, algorithm := range []string{
		"algorithm: fixed_window", "algorithm: sliding_window", "algorithm: sliding_log", "algorithm: token_bucket",
		"algorithm: leaky_bucket", "name: calls, algorithm: concurrency", "name: calls, reserve: {amount: 1}",
	} {
		for _, units := range [][2]rules.Unit{{rules.Day, rules.Minute}, {rules.Minute, rules.Day}} {
			text := fmt.Sprintf("{domain: d, descriptors: [{key: customer, rate_limit: {%s, requests_per_unit: 8, unit: %v, table: plans}}]}", algorithm, units[0])
			for _, stored := range []bool{false, true} {
				for source, request := range requests {
					t.Run(fmt.Sprintf("%s of %s, %v, stored %v", source, algorithm, units, stored), func(t *testing.T) {
						registry := new(tables.Registry)
						e, err := registry.Add("plans", "")
						if err == nil {
							err = e.Put([]string{"customer"}, []string{"acme"}, tables.Row{RequestsPerUnit: 5, Unit: units[1]})
						}
						if err != nil {
							t.Fatal(err)
						}
						settings := answer.Settings{Tables: registry}
						decider := &namedDecider{charged: map[identity.ID]string{}}
						if stored {
							decider.Table = servertest.Table(t)
							settings.Decider, settings.Namer = decider, descriptors.NewNamer("", nil)
						}
						s := servertest.Service(t, settings, "")
						if err := s.SetRules(noon, servertest.CompileWith(t, text, descriptors.Options{Tables: registry})); err != nil {
							t.Fatal(err)
						}
						testResetDenied(t, s, request)
						for id, name := range decider.charged {
							if len(decider.reset) != 1 || decider.reset[0] != name {
								t.Errorf("the counters %q were reset, want %q of %v", decider.reset, name, id)
							}
						}
					})
				}
			}
		}
	}
}

// testResetDenied repeats a request until it is denied, resets all denied keys, and sends it again.
func testResetDenied(t *testing.T, s *answer.Service, request *rls.RateLimitRequest) {
	t.Helper()
	a := newAPI(t, s, zap.NewNop())
	a.Tick(time.Unix(0, int64(noon)))
	bytes := servertest.Marshal(t, request)
	x := &answer.Exchange{}
	admitted := func() (n uint64) {
		for range 30 {
			if _, _, err := s.Answer(noon, time.Minute, x, bytes); err != nil {
				t.Fatal(err)
			}
			if x.OverLimit() {
				break
			}
			n++
		}
		return n
	}
	first := admitted()
	which := live.Selection{Domain: "d"}
	preview, err := a.ResetCounters(t.Context(), noon, which, false)
	if err != nil || preview.Counters != 1 || preview.Used < first {
		t.Errorf("the preview is %+v, error %v, want a counter with %d used hits", preview, err, first)
	}
	report, err := a.ResetCounters(t.Context(), noon, which, true)
	if err != nil || report.Counters != 1 || report.Used != preview.Used {
		t.Errorf("the reset is %+v, error %v, want the numbers of the preview %+v", report, err, preview)
	}
	if again := admitted(); again != first || first == 0 {
		t.Errorf("%d requests were admitted before the reset and %d after it, want the same number", first, again)
	}
	if _, _, err := s.Answer(noon+limiter.Time(48*time.Hour), time.Minute, x, bytes); err != nil || x.OverLimit() {
		t.Errorf("two days later a request is denied, or has the error %v", err)
	}
}
