package answer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const noticeRules = `
domain: d
descriptors:
- {key: window, rate_limit: {name: w, unit: minute, requests_per_unit: 10, notify_at: [1, 0.5, 0.8]}}
- {key: one, rate_limit: {name: o, unit: minute, requests_per_unit: 10, notify_at: 1}}
- {key: bucket, rate_limit: {name: b, unit: minute, requests_per_unit: 60, algorithm: token_bucket, burst: 10, notify_at: 0.5}}
- {key: sliding, rate_limit: {name: s, unit: minute, requests_per_unit: 10, algorithm: sliding_window, notify_at: 0.5}}
- {key: log, rate_limit: {name: l, unit: minute, requests_per_unit: 10, algorithm: sliding_log, notify_at: 0.5}}
- {key: slow, rate_limit: {name: c, unit: minute, requests_per_unit: 4, algorithm: concurrency, notify_at: 0.5}}
- {key: tokens, rate_limit: {name: t, unit: minute, requests_per_unit: 100, reserve: {amount: 30}, notify_at: 0.5}}
- key: list
  rate_limits:
  - {name: calm, unit: minute, requests_per_unit: 6, soft: true}
  - {name: busy, unit: minute, requests_per_unit: 8, soft: true}
  - {name: hard, unit: minute, requests_per_unit: 10, notify_at: [0.5, 1]}
  - {name: hour, unit: hour, requests_per_unit: 12, notify_at: 0.9}
- {key: shared, rate_limit: {name: p, unit: minute, requests_per_unit: 10, counter: pool, notify_at: 0.5}}
- {key: none, rate_limit: {name: n, unit: minute, requests_per_unit: 0, notify_at: [0.5, 1]}}
`

// noticeLog returns a function that returns the new notices of s, as the name of the limit, the share
// and the used hits.
func noticeLog(s *Service) (read func() string) {
	core, logs := observer.New(zap.InfoLevel)
	s.notices.logger = zap.New(core)
	return func() string {
		var all []string
		for _, line := range logs.TakeAll() {
			f := line.ContextMap()
			all = append(all, fmt.Sprintf("%v %v %v", f["name"], f["share"], f["used"]))
		}
		return strings.Join(all, ", ")
	}
}

// TestNotices makes requests, one for each word, and compares the notices of each.
func TestNotices(t *testing.T) {
	type step struct {
		after int // seconds
		key   string
		want  string
	}
	for name, steps := range map[string][]step{
		"shares of a window":          {{0, "window:4", ""}, {0, "window:1", "w 0.5 5"}, {0, "window:2", ""}, {0, "window:1", "w 0.8 8"}, {0, "window:1", ""}, {0, "window:1", "w 1 10"}, {0, "window:1", ""}, {60, "window:5", "w 0.5 5"}},
		"several at once":             {{0, "window:9", "w 0.5 9, w 0.8 9"}},
		"denied hits count":           {{0, "one:9", ""}, {0, "one:5", "o 1 14"}, {0, "one:1", ""}},
		"a refund":                    {{0, "window:5", "w 0.5 5"}, {0, "window:-1", ""}, {0, "window:1", "w 0.5 5"}},
		"of a key":                    {{0, "window=a:5", "w 0.5 5"}, {0, "window=b:4", ""}, {0, "window=b:1", "w 0.5 5"}},
		"a bucket, once in a window":  {{0, "bucket:5", "b 0.5 5"}, {3, "bucket:3", ""}, {57, "bucket:5", "b 0.5 5"}, {59, "bucket:10", ""}},
		"a sliding window":            {{0, "sliding:5", "s 0.5 5"}, {50, "sliding:1", ""}, {20, "sliding:5", "s 0.5 6"}},
		"a log":                       {{0, "log:5", "l 0.5 5"}, {0, "log:-1", ""}, {59, "log:1", ""}, {2, "log:9", "l 0.5 10"}},
		"permits":                     {{0, "slow", ""}, {0, "slow", "c 0.5 2"}, {0, "slow", ""}},
		"reserved hits":               {{0, "tokens:20", ""}, {0, "tokens", "t 0.5 50"}, {0, "tokens:40", ""}},
		"a limit of 0":                {{0, "none:1", ""}},
		"a denial by another limit":   {{0, "list:9", "hard 0.5 9"}, {0, "list:3", ""}, {0, "list:1", "hard 1 10"}, {60, "list:2", "hour 0.9 12"}},
		"several limits of a request": {{0, "list:10", "hard 0.5 10, hard 1 10"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := service(t, Settings{}, noticeRules)
			read, now := noticeLog(s), noon
			for i, step := range steps {
				now += limiter.Time(step.after) * limiter.Time(time.Second)
				request := &rls.RateLimitRequest{Domain: "d"}
				request.Descriptors = append(request.Descriptors, softDescriptor(t, step.key))
				_, _, err := s.Answer(now, time.Hour, &Exchange{}, marshal(t, request))
				must.OK(t, err)
				if got := read(); got != step.want {
					t.Errorf("step %d, %s: notices %q, want %q", i, step.key, got, step.want)
				}
			}
		})
	}
}

// TestTwoSoftLimitsOfOneWindow checks that each soft limit counts by itself.
func TestTwoSoftLimitsOfOneWindow(t *testing.T) {
	s := service(t, Settings{DeniedBy: true}, noticeRules)
	for i, want := range strings.Split(",,,,hard,hard,calm,calm,calm,calm,calm", ",") {
		if got := askSoft(t, s, noon, "list"); got.metadata != want || got.over != (i >= 10) {
			t.Errorf("hit %d: %+v, want %q", i+1, got, want)
		}
	}
	s = service(t, Settings{DeniedBy: true}, "{domain: d, descriptors: [{key: k, rate_limits: [{name: more, unit: day, requests_per_unit: 4, soft: true}, "+
		"{name: less, unit: day, requests_per_unit: 2, soft: true}, {name: hard, unit: day, requests_per_unit: 9}]}]}")
	for i, want := range strings.Split(",,less,less,more", ",") {
		if got := askSoft(t, s, noon, "k"); got.metadata != want {
			t.Errorf("hit %d: %q, want %q", i+1, got.metadata, want)
		}
	}
}

// TestNoticeFields compares the fields of a notice for each mode of denied keys.
func TestNoticeFields(t *testing.T) {
	for mode, want := range map[string]string{live.Off: "", live.Hashed: "key", live.HashedOnly: "key", live.Clear: "key descriptor"} {
		s := service(t, Settings{TopKeys: mode}, noticeRules)
		core, logs := observer.New(zap.InfoLevel)
		s.notices.logger = zap.New(core)
		askSoft(t, s, noon, "window=al,ice:5")
		line := logs.All()[0]
		f, got := line.ContextMap(), []string{}
		for _, name := range []string{"key", "descriptor"} {
			if f[name] != nil {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want || line.Message != telemetry.NoticeMessage || f["domain"] != "d" || f["rule"] != "window" || f["limit"] != "10/minute" {
			t.Errorf("%s: %s %v", mode, line.Message, f)
		}
		if end := time.Unix(0, int64(noon)).Add(time.Minute).UTC(); f["window_end"] != end {
			t.Errorf("%s: window_end is %v, want %v", mode, f["window_end"], end)
		}
		if text := fmt.Sprint(f["descriptor"]); mode == live.Clear && text != `window=al\,ice` {
			t.Errorf("the descriptor is %s", text)
		}
		askSoft(t, s, noon, "shared=alice:5")
		if text := fmt.Sprint(logs.All()[1].ContextMap()["descriptor"]); mode == live.Clear && text != "counter=pool" {
			t.Errorf("the descriptor of a shared counter is %s", text)
		}
	}
}

// TestNoticesAreBounded lets many counters reach a share in a second.
func TestNoticesAreBounded(t *testing.T) {
	s := service(t, Settings{}, noticeRules)
	read := noticeLog(s)
	for i := range 250 {
		askSoft(t, s, noon+limiter.Time(i)*limiter.Time(2*time.Millisecond), fmt.Sprintf("bucket=%d:5", i))
	}
	if n := strings.Count(read(), "b 0.5"); n != noticesPerSecond {
		t.Errorf("%d notices in half a second, want %d", n, noticesPerSecond)
	}
	if n := testutil.ToFloat64(s.metrics.NoticesDropped); n != 150 {
		t.Errorf("%v notices were dropped, want 150", n)
	}
	for i, want := range []int{0, 1} { // the first notice is a second old at last
		askSoft(t, s, noon+limiter.Time(time.Second)-limiter.Time(1-i), fmt.Sprintf("bucket=late%d:5", i))
		if n := strings.Count(read(), "b 0.5"); n != want {
			t.Errorf("%d notices after a second, want %d", n, want)
		}
	}
	s.notices.oldest = 0
	for i := range maxRecentNotices + 10 {
		s.notices.rememberLocked(noticeKey{share: float64(i)}, noon)
	}
	if n := len(s.notices.until); n != maxRecentNotices || len(s.notices.recent) != n {
		t.Errorf("%d notices are remembered, want %d", n, maxRecentNotices)
	}
}
