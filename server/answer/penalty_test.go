package answer

import (
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
)

const penaltyRules = `
domain: login
descriptors:
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 2, penalty: [2m, 5m, 10m]}}
  - {key: tried, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2, penalty: [2m]}}
`

// login is a service that receives requests at times after noon.
type login struct {
	*Service

	t *testing.T
}

func newLogin(t *testing.T, settings Settings) *login {
	t.Helper()
	settings.RetryAfterHeader, settings.NearLimitRatio, settings.TopKeys = true, 0.8, live.Clear
	s := service(t, settings, penaltyRules)
	s.live.Tick(time.Unix(0, int64(noon)))
	return &login{s, t}
}

// requestAt reports whether a descriptor with the given hits is admitted, after how many seconds it
// would be, and the value of Retry-After.
func (s *login) requestAt(at time.Duration, key, value string, hits uint64, limit *rlcommon.RateLimitDescriptor_RateLimitOverride) (passes bool, reset int64, retry string) {
	s.t.Helper()
	var x Exchange
	b, _, err := s.Answer(noon+limiter.Time(at), 0, &x, marshal(s.t, &rls.RateLimitRequest{Domain: "login", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries: []*rlcommon.RateLimitDescriptor_Entry{entry(key, value)}, HitsAddend: wrapperspb.UInt64(hits), Limit: limit,
	}}}))
	var reply rls.RateLimitResponse
	if err == nil {
		err = proto.Unmarshal(b, &reply)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range reply.GetResponseHeadersToAdd() {
		if h.GetKey() == "Retry-After" {
			retry = h.GetValue()
		}
	}
	status := reply.GetStatuses()[0]
	if over := reply.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT; over == (status.GetCode() == rls.RateLimitResponse_OK) && !s.settings.ShadowMode {
		s.t.Errorf("overall %v of %v", reply.GetOverallCode(), status)
	}
	return reply.GetOverallCode() == rls.RateLimitResponse_OK, status.GetDurationUntilReset().GetSeconds(), retry
}

func TestPenaltyInReplies(t *testing.T) {
	s := newLogin(t, Settings{})
	if n, err := testutil.GatherAndCount(s.metrics.Registry, "sluice_penalties_total"); n != 2 || err != nil {
		t.Errorf("before any penalty there are %d series, want one per limit with a penalty, %v", n, err)
	}
	for _, step := range []struct {
		at     time.Duration
		hits   uint64
		passes bool
		reset  int64
		retry  string
	}{
		{0, 2, true, 60, ""},
		{0, 1, false, 120, "120"},                          // denied for two minutes
		{time.Second, 1, false, 119, "119"},                // a denied request does not extend it
		{90 * time.Second, 0, false, 30, "30"},             // no hits; the next window has started
		{119500 * time.Millisecond, 5, false, 1, "1"},      // more than the limit: the penalty still decides
		{120 * time.Second, 2, true, 60, ""},               // denied hits have not counted
		{121 * time.Second, 1, false, 300, "300"},          // the next step: within one window of the penalty's end
		{421 * time.Second, 0, true, 59, ""},               // the penalty is over
		{421 * time.Second, 3, false, 600, "600"},          // could never be admitted
		{(421 + 659) * time.Second, 3, false, 600, "600"},  // the last step repeats
		{(421 + 1319) * time.Second, 3, false, 120, "120"}, // more than a window later, the steps restart
	} {
		if passes, reset, retry := s.requestAt(step.at, "ip", "a", step.hits, nil); passes != step.passes || reset != step.reset || retry != step.retry {
			t.Errorf("%v: %d hits: pass %v, reset %d, Retry-After %q; want %+v", step.at, step.hits, passes, reset, retry, step)
		}
	}
	if passes, _, _ := s.requestAt(0, "ip", "b", 2, nil); !passes {
		t.Error("another client is denied")
	}
	count := s.rules.Load().counters.Get(0).Hits()
	if count.Over != 1+1+5+1+1+1+1 || count.Total != 2+1+1+5+2+1+3+3+3+2 || count.Near != 6 || count.Within != 6 {
		t.Errorf("counted %+v", count)
	}
	if got := gathered(t, s.Service, "sluice_penalties_total"); got != 5 {
		t.Errorf("%v penalties, want 5", got)
	}
}

// TestPenaltyOfAnOverride checks that a limit override has the penalty of its rule.
func TestPenaltyOfAnOverride(t *testing.T) {
	s := newLogin(t, Settings{})
	own := &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_HOUR}
	s.requestAt(0, "ip", "a", 1, own)
	if _, reset, _ := s.requestAt(55*time.Minute, "ip", "a", 1, own); reset != 300 {
		t.Errorf("five minutes before the hour's end: reset in %d", reset)
	}
	if passes, reset, _ := s.requestAt(58*time.Minute, "ip", "a", 1, own); passes || reset != 300 {
		t.Errorf("two minutes before: %v, reset in %d", passes, reset)
	}
	if passes, reset, _ := s.requestAt(61*time.Minute, "ip", "a", 1, own); passes || reset != 120 {
		t.Errorf("in the next hour, which has hits left: %v, reset in %d", passes, reset)
	}
	if passes, reset, _ := s.requestAt(61*time.Minute, "ip", "a", 2, own); passes || reset != 59*60 {
		t.Errorf("in the next hour: %v, reset in %d", passes, reset)
	}
}

// TestPenaltyAndShadowMode checks that rules in shadow mode have no penalties, and that a service
// in shadow mode counts them but admits requests.
func TestPenaltyAndShadowMode(t *testing.T) {
	s := newLogin(t, Settings{})
	for range 5 {
		if passes, reset, _ := s.requestAt(0, "tried", "a", 1, nil); !passes || reset > 60 {
			t.Errorf("a rule in shadow mode: pass %v, reset in %d", passes, reset)
		}
	}
	s = newLogin(t, Settings{ShadowMode: true})
	for range 3 {
		s.requestAt(0, "ip", "a", 1, nil)
	}
	passes, _, _ := s.requestAt(time.Minute, "ip", "a", 1, nil)
	rules, err := s.Active()
	if err != nil {
		t.Fatal(err)
	}
	look := rules.Lookup("login", descriptorOf("ip", "a"))
	if err := look.Decide(noon + limiter.Time(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if d := look.Plan.Batch.Decisions[0]; !passes || d.Penalty != 1 || d.RetryAfter != time.Minute {
		t.Errorf("the service in shadow mode: pass %v, %+v", passes, d)
	}
}
