package answer

import (
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const softHeader = "x-ratelimit-soft"

// softReply is what a reply says of soft limits.
type softReply struct {
	over                        bool
	metadata, request, response string // "" if absent
	statuses                    string
}

// askSoft requests a hit of each key at a time, or the number of hits after a colon.
func askSoft(t *testing.T, s *Service, now limiter.Time, keys ...string) (r softReply) {
	t.Helper()
	request := &rls.RateLimitRequest{Domain: "d"}
	for _, key := range keys {
		request.Descriptors = append(request.Descriptors, softDescriptor(t, key))
	}
	b, _, err := s.Answer(now, 0, &Exchange{}, marshal(t, request))
	must.OK(t, err)
	reply := new(rls.RateLimitResponse)
	must.OK(t, proto.Unmarshal(b, reply))
	r.over = reply.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT
	r.metadata = reply.GetDynamicMetadata().GetFields()["soft"].GetStringValue()
	for _, h := range reply.GetRequestHeadersToAdd() {
		r.request += h.GetValue()
	}
	for _, h := range reply.GetResponseHeadersToAdd() {
		if h.GetKey() == softHeader {
			r.response += h.GetValue()
		}
	}
	for _, st := range reply.GetStatuses() {
		r.statuses += st.GetCurrentLimit().GetName() + "/"
	}
	return r
}

// softDescriptor returns a descriptor of the entry key=v, or key=value. It has the hits after a colon.
func softDescriptor(t *testing.T, text string) *ratelimitv3.RateLimitDescriptor {
	t.Helper()
	text, hits, counted := strings.Cut(text, ":")
	key, value, _ := strings.Cut(text, "=")
	d := &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{entry(key, value)}}
	if counted {
		n, err := strconv.ParseInt(hits, 10, 64)
		must.OK(t, err)
		d.IsNegativeHits = n < 0
		d.HitsAddend = wrapperspb.UInt64(uint64(max(n, -n)))
	}
	return d
}

var softRules = `
domain: d
descriptors:
- {key: budget, rate_limit: {name: budget, unit: hour, requests_per_unit: 5, soft: true}}
- key: list
  rate_limits:
  - {name: calm, unit: minute, requests_per_unit: 2, soft: true}
  - {name: hard, unit: minute, requests_per_unit: 4, notify_at: 0.7}
- key: reversed
  rate_limits:
  - {name: deny, unit: minute, requests_per_unit: 4, notify_at: 0.5}
  - {name: ease, unit: day, requests_per_unit: 1, soft: true}
- {key: near, rate_limit: {name: near, unit: minute, requests_per_unit: 100, notify_at: 0.07}}
- {key: secret, rate_limit: {name: secret, unit: minute, requests_per_unit: 0, soft: true, hidden: true}}
- {key: open, rate_limit: {name: open, unit: minute, requests_per_unit: 0, soft: true}}
- {key: closed, rate_limit: {name: closed, unit: minute, requests_per_unit: 0}}
- {key: odd, rate_limit: {name: " größe\u007f\n: 1 ", unit: minute, requests_per_unit: 0, soft: true}}
- {key: long, rate_limit: {name: "` + strings.Repeat(" ", 300) + `far", unit: minute, requests_per_unit: 0, soft: true}}
- {key: bucket, rate_limit: {name: bucket, unit: minute, requests_per_unit: 60, burst: 2, algorithm: token_bucket, soft: true}}
- {key: free, rate_limit: {unlimited: true, name: free}}
- {key: quota, quota_mode: true, rate_limit: {name: quota, unit: minute, requests_per_unit: 1}}
- {key: tried, shadow_mode: true, rate_limits: [{name: tried, unit: minute, requests_per_unit: 1}, {name: eased, unit: minute, requests_per_unit: 0, soft: true}]}
- {key: rerouted, rate_limit: {name: rerouted, unit: minute, requests_per_unit: 2, algorithm: concurrency, soft: true}}
`

// TestSoftLimits checks the names that Envoy receives, and that soft limits change neither decisions
// nor statuses. The steps of a case are requests one after another.
func TestSoftLimits(t *testing.T) {
	type step struct {
		after time.Duration
		keys  string
		want  softReply
	}
	reply := func(name, statuses string) softReply { return softReply{false, name, name, name, statuses} }
	for name, steps := range map[string][]step{
		"exceeded until the window ends, with single hits after a large one": {
			{0, "budget:4", reply("", "/")},
			{0, "budget:3", reply("budget", "/")},
			{0, "budget:0", reply("budget", "/")},
			{59 * time.Minute, "budget:1", reply("budget", "/")},
			{time.Minute, "budget:1", reply("", "/")},
		},
		"a refund": {{0, "budget:6", reply("budget", "/")}, {0, "budget:-3", reply("", "/")}, {0, "budget:1", reply("", "/")}},
		"others of the list are charged, and deny": {
			{0, "list", reply("", "hard/")},
			{0, "list", reply("", "hard/")},
			{0, "list", reply("calm", "hard/")},
			{0, "list", reply("calm", "hard/")},
			{0, "list", softReply{true, "calm", "", "calm", "hard/"}},
		},
		"the first of the file, not of the list's active limits": {
			{0, "reversed", reply("", "deny/")}, {0, "reversed", reply("deny", "deny/")},
		},
		"the first of the file, not of the request": {{0, "open,near:7", reply("near", "/near/")}},
		"notify_at":             {{0, "near:6", reply("", "near/")}, {0, "near", reply("near", "near/")}, {0, "near:0", reply("near", "near/")}},
		"notify_at of a denial": {{0, "near:101", softReply{true, "near", "", "near", "near/"}}},
		"a hidden limit":        {{0, "secret", softReply{false, "secret", "secret", "", "/"}}},
		"the response has the first that is not hidden": {{0, "secret,open", softReply{false, "secret", "secret", "open", "//"}}},
		"another limit denies":                          {{0, "closed,open", softReply{true, "open", "", "open", "closed//"}}},
		"odd characters":                                {{0, "odd", reply("gr????e??: 1", "/")}},
		"a name behind many spaces":                     {{0, "long", reply("far", "/")}},
		"a bucket is in debt until usage falls": {
			{0, "bucket:30", reply("bucket", "/")}, {time.Second, "bucket:0", reply("bucket", "/")}, {time.Minute, "bucket:0", reply("", "/")},
		},
		"values have counters of their own": {{0, "budget=a:6", reply("budget", "/")}, {0, "budget=b:5", reply("", "/")}},
		"an unlimited rule":                 {{0, "free,open", reply("open", "//")}},
		"a soft limit is no quota": {
			{0, "quota,open", reply("open", "quota//")}, {0, "quota,open", softReply{true, "open", "", "open", "quota//"}},
		},
		"shadow_mode": {{0, "tried", reply("eased", "tried/")}, {0, "tried", reply("eased", "tried/")}},
		"requests in progress, none of which is returned": {
			{0, "rerouted", softReply{statuses: "/"}}, {0, "rerouted", softReply{statuses: "/"}}, {0, "rerouted", reply("rerouted", "/")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := service(t, Settings{DeniedBy: true, SoftHeader: softHeader, RateLimitHeaders: "structured"}, softRules)
			now := noon
			for i, st := range steps {
				now += limiter.Time(st.after)
				if got := askSoft(t, s, now, strings.Split(st.keys, ",")...); got != st.want {
					t.Errorf("request %d: %+v, want %+v", i+1, got, st.want)
				}
			}
		})
	}
}

// TestSoftSettings checks that the metadata and the header depend on their own flags.
func TestSoftSettings(t *testing.T) {
	for _, tt := range []struct {
		settings Settings
		want     softReply
	}{
		{Settings{}, softReply{statuses: "/"}},
		{Settings{DeniedBy: true}, softReply{metadata: "open", statuses: "/"}},
		{Settings{SoftHeader: softHeader}, softReply{request: "open", response: "open", statuses: "/"}},
		{Settings{SoftHeader: softHeader, ShadowMode: true, QuotaMode: true}, softReply{request: "open", response: "open", statuses: "/"}},
	} {
		if got := askSoft(t, service(t, tt.settings, softRules), noon, "open"); got != tt.want {
			t.Errorf("with %+v: %+v, want %+v", tt.settings, got, tt.want)
		}
	}
}

// TestSoftLimitWithOverride checks that a limit in the request replaces a soft limit and denies.
func TestSoftLimitWithOverride(t *testing.T) {
	s := service(t, Settings{DeniedBy: true}, softRules)
	for _, key := range []string{"open", "rerouted", "list"} {
		d := softDescriptor(t, key)
		d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 0, Unit: typev3.RateLimitUnit_HOUR}
		b, _, err := s.Answer(noon, 0, &Exchange{}, marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{d}}))
		must.OK(t, err)
		reply := new(rls.RateLimitResponse)
		must.OK(t, proto.Unmarshal(b, reply))
		if soft := reply.GetDynamicMetadata().GetFields()["soft"]; reply.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT || soft != nil {
			t.Errorf("%s: %v, want a denial without soft", key, reply)
		}
	}
}

// TestMetadataOfSoftRule checks that the metadata of a descriptor whose limits are all soft is
// returned, since they admit each request.
func TestMetadataOfSoftRule(t *testing.T) {
	s := service(t, Settings{DynamicMetadata: true}, "{domain: d, descriptors: [{key: k, metadata: {team: billing}, rate_limit: {name: n, unit: hour, requests_per_unit: 0, soft: true}}]}")
	b, _, err := s.Answer(noon, 0, &Exchange{}, marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{softDescriptor(t, "k")}}))
	must.OK(t, err)
	reply := new(rls.RateLimitResponse)
	must.OK(t, proto.Unmarshal(b, reply))
	if got := reply.GetDynamicMetadata().GetFields()["metadata"].GetStructValue().GetFields()["team"].GetStringValue(); got != "billing" {
		t.Errorf("metadata %v, want the team", reply.GetDynamicMetadata())
	}
}

// TestSoftMetrics checks that the hits above a soft limit are counted like those of shadow mode.
func TestSoftMetrics(t *testing.T) {
	s := service(t, Settings{}, softRules)
	askSoft(t, s, noon, "budget:4")
	askSoft(t, s, noon, "budget:3")
	if got, want := counted(t, s.metrics.Registry), (telemetry.Hits{Total: 7, Within: 4, Over: 2, Shadow: 2, Near: 5}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// TestSoftAllocatesNothing checks requests that exceed soft limits.
func TestSoftAllocatesNothing(t *testing.T) {
	s := service(t, Settings{DeniedBy: true, SoftHeader: softHeader}, softRules)
	var x Exchange
	request := marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{
		softDescriptor(t, "secret"), softDescriptor(t, "open"), softDescriptor(t, "near"), softDescriptor(t, "list"),
	}})
	if n := must.AllocsPerRun(100, func() { _, _, _ = s.Answer(noon, 0, &x, request) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
