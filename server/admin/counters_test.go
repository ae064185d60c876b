package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

const countersRules = `
domain: d
all_or_nothing: true
max_counters: 100
descriptors:
  - {key: window, rate_limit: {unit: year, requests_per_unit: 5, name: yearly, count_refused: true}}
  - {key: ring, rate_limit: {unit: year, requests_per_unit: 5, algorithm: sliding_window, count_refused: true}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 5, algorithm: sliding_log}}
  - {key: token, rate_limit: {unit: year, requests_per_unit: 5, algorithm: token_bucket, burst: 7, count_refused: true}}
  - {key: leaky, rate_limit: {unit: year, requests_per_unit: 5, algorithm: leaky_bucket, slack: 1}}
  - {key: hold, rate_limit: {unit: second, requests_per_unit: 1, algorithm: leaky_bucket, slack: 0, max_wait: 60s}}
  - key: list
    rate_limits:
      - {unit: year, requests_per_unit: 5}
      - {unit: month, requests_per_unit: 50, algorithm: sliding_window}
  - {key: shared, value: "a*", share_threshold: true, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: parent, descriptors: [{key: child, rate_limit: {unit: year, requests_per_unit: 5}}]}
`

func askCounters(t *testing.T, addr string, q client.CounterQuery) *admin.CounterReport {
	t.Helper()
	q.Domain = "d"
	report, err := (&client.Debug{Addr: addr}).Counters(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestCountersAreLookedUpAndReset looks up and resets a counter of each algorithm. All windows are
// long, so that the duration of the test does not matter.
func TestCountersAreLookedUpAndReset(t *testing.T) {
	s := servertest.Service(t, answer.Settings{}, countersRules)
	addr, logs := debugServer(t, s)
	for _, tt := range []struct {
		key  string
		hits []uint64
		want []admin.CounterState
	}{
		{"window", []uint64{3}, []admin.CounterState{{Limit: "5/year, count_refused: true", Name: "yearly", Used: 3, Capacity: 5, Remaining: 2}}},
		{"window", []uint64{5, 3}, []admin.CounterState{{Limit: "5/year, count_refused: true", Name: "yearly", Used: 8, Capacity: 5, Over: true, Denied: true}}},
		{"ring", []uint64{5, 1}, []admin.CounterState{{Limit: "5/year, algorithm: sliding_window, sub_windows: 10, count_refused: true", Used: 6, Capacity: 5, Over: true, Denied: true}}},
		{"log", []uint64{2, 2}, []admin.CounterState{{Limit: "5/year, algorithm: sliding_log", Used: 4, Capacity: 5, Remaining: 1}}},
		{"token", []uint64{7}, []admin.CounterState{{Limit: "5/year, algorithm: token_bucket, burst: 7, count_refused: true", Used: 7, Capacity: 7}}},
		{"token", []uint64{7, 1}, []admin.CounterState{{Limit: "5/year, algorithm: token_bucket, burst: 7, count_refused: true", Used: 8, Capacity: 7, Over: true, Denied: true}}},
		{"leaky", []uint64{1}, []admin.CounterState{{Limit: "5/year, algorithm: leaky_bucket, slack: 1, max_wait: 0s, max_waiting: 100", Used: 1, Capacity: 2, Remaining: 1}}},
		{"list", []uint64{2}, []admin.CounterState{
			{Limit: "5/year", Used: 2, Capacity: 5, Remaining: 3},
			{Limit: "50/month, algorithm: sliding_window, sub_windows: 10", Used: 2, Capacity: 50, Remaining: 48},
		}},
	} {
		ignore := cmpopts.IgnoreFields(admin.CounterState{}, "Unit", "Key", "ResetsIn", "ResetsAt")
		q := client.CounterQuery{Descriptor: tt.key + "=alice"}
		for _, n := range tt.hits {
			servertest.Hit(t, s, tt.key, "alice", n, nil)
		}
		servertest.Hit(t, s, tt.key, "bob", 1, nil)
		for range 3 { // a lookup changes nothing
			before := time.Now()
			report := askCounters(t, addr, q)
			after := time.Now()
			if diff := cmp.Diff(tt.want, report.Counters, ignore); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.key, diff)
			}
			if report.Rule != tt.key || !strings.Contains(report.Explanation, "key only  "+tt.key+": hit") || report.ConfigHash != s.Rules().Hash {
				t.Errorf("%s: report is %+v", tt.key, report)
			}
			for _, c := range report.Counters {
				in := time.Duration(c.ResetsIn * float64(time.Second))
				if c.ResetsIn < 1 || c.ResetsAt.Sub(before) < in-time.Second || c.ResetsAt.Sub(after) > in+time.Second {
					t.Errorf("%s resets in %v s, at %v", tt.key, c.ResetsIn, c.ResetsAt)
				}
			}
		}
		before := testutil.ToFloat64(s.Metrics().CounterResets)
		var used uint64
		for _, c := range tt.want {
			used += c.Used
		}
		if got := resetCounters(t, addr, live.Selection{Domain: "d", Descriptor: q.Descriptor}); got.Used != used || got.Counters != len(tt.want) {
			t.Errorf("%s: the reset is %+v, want %d counters with %d used hits", tt.key, got, len(tt.want), used)
		}
		for _, c := range askCounters(t, addr, q).Counters {
			if c.Used != 0 || c.Over || c.Remaining != c.Capacity || c.ResetsAt != nil {
				t.Errorf("%s after the reset: %+v", tt.key, c)
			}
		}
		if n := testutil.ToFloat64(s.Metrics().CounterResets) - before; n != float64(len(tt.want)) {
			t.Errorf("%s: %v resets were counted, want %d", tt.key, n, len(tt.want))
		}
		if c := askCounters(t, addr, client.CounterQuery{Descriptor: tt.key + "=bob"}).Counters[0]; c.Used == 0 {
			t.Errorf("%s: the counter of bob was reset too", tt.key)
		}
	}
	found := logs.FilterMessage("counters reset").All()
	if len(found) == 0 || found[0].ContextMap()["selection"] != "one descriptor in the domain d" || found[0].Level != zap.InfoLevel {
		t.Errorf("log is %v", found)
	}
	for _, e := range logs.All() {
		if text := e.Message + " " + jsonText(t, e.ContextMap()); strings.Contains(text, "alice") {
			t.Errorf("a client's value is in the log: %s", text)
		}
	}
}

// failingDecider resets one counter, and then fails like a store that becomes unavailable.
type failingDecider struct {
	namedDecider
	resets int
}

func (d *failingDecider) Reset(ctx context.Context, now limiter.Time, b *limiter.Batch, names [][]byte, i int) (uint64, error) {
	if d.resets++; d.resets > 1 {
		return 0, errors.New("unavailable")
	}
	return d.namedDecider.Reset(ctx, now, b, names, i)
}

func TestPartialResetIsReported(t *testing.T) {
	d := &failingDecider{namedDecider: namedDecider{Table: servertest.Table(t), charged: map[identity.ID]string{}}}
	s := servertest.Service(t, answer.Settings{Decider: d, Namer: descriptors.NewNamer("", nil)}, countersRules)
	addr, logs := debugServer(t, s)
	which := live.Selection{Domain: "d", Descriptor: "list=x"}
	c := &client.Debug{Addr: addr}
	_, err := c.ResetCounters(t.Context(), which, true)
	resets, lines := testutil.ToFloat64(s.Metrics().CounterResets), logs.FilterMessage("counters reset").Len()
	if err == nil || !strings.Contains(err.Error(), "503 Service Unavailable: 1 counters were reset") || resets != 1 || lines != 1 {
		t.Errorf("error %v, %v resets counted and %d logged, want 503 and one of each", err, resets, lines)
	}
}

// resetCounters resets counters after a preview.
func resetCounters(t *testing.T, addr string, which live.Selection) *live.Reset {
	t.Helper()
	c := &client.Debug{Addr: addr}
	preview, err := c.ResetCounters(t.Context(), which, false)
	must.OK(t, err)
	done, err := c.ResetCounters(t.Context(), which, true)
	must.OK(t, err)
	if done.Used != preview.Used || done.Counters != preview.Counters {
		t.Errorf("the reset is %+v, and its preview was %+v", done, preview)
	}
	return done
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSpecialCounters looks up shared counters, overrides, counters whose hits would be delayed,
// and descriptors without a counter.
func TestSpecialCounters(t *testing.T) {
	table := servertest.Table(t)
	s := servertest.ServiceOn(t, table, answer.Settings{}, countersRules)
	addr, _ := debugServer(t, s)
	servertest.Hit(t, s, "shared", "alice", 2, nil)
	if c := askCounters(t, addr, client.CounterQuery{Descriptor: "shared=adam"}).Counters[0]; c.Used != 2 {
		t.Errorf("the shared counter is %+v, want 2 used", c)
	}
	own := &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 9, Unit: 6}
	servertest.Hit(t, s, "window", "alice", 4, own)
	servertest.Hit(t, s, "nobody", "alice", 3, own)
	for descriptor, used := range map[string]uint64{"window=alice": 4, "nobody=alice": 3} {
		report := askCounters(t, addr, client.CounterQuery{Descriptor: descriptor, Limit: "9/year"})
		if len(report.Counters) != 1 || report.Counters[0].Used != used || report.Counters[0].Limit != "9/year" || report.Rule != "" {
			t.Errorf("%s with a limit override: %+v", descriptor, report)
		}
		if got := resetCounters(t, addr, live.Selection{Domain: "d", Descriptor: descriptor, Limit: "9/year"}); got.Used != used || got.Counters != 1 {
			t.Errorf("%s: the reset is %+v", descriptor, got)
		}
	}
	if r := askCounters(t, addr, client.CounterQuery{Descriptor: "log=alice", Limit: "5000/year"}); r.Rule != "log" || !strings.Contains(r.Reason, "cannot be used") {
		t.Errorf("with a limit override that cannot be used: %+v", r)
	}
	if c := askCounters(t, addr, client.CounterQuery{Descriptor: "hold=alice"}).Counters[0]; c.Capacity != 61 || c.Remaining != 61 {
		t.Errorf("a bucket that delays responses: %+v, want a capacity of 61", c)
	}
	for descriptor, reason := range map[string]string{
		"free=alice":   "an unlimited rule has no counters",
		"nobody=alice": "nothing matches entry 1, nobody=alice",
		"parent=alice": "has no limit; deeper ones require",
		"":             "the descriptor is empty",
	} {
		if r := askCounters(t, addr, client.CounterQuery{Descriptor: descriptor}); len(r.Counters) != 0 || !strings.Contains(r.Reason, reason) {
			t.Errorf("%q: %+v, want the reason %q", descriptor, r, reason)
		}
	}
	countLive := func() (n int64) {
		for _, c := range table.Classes(limiter.Time(time.Now().UnixNano())) {
			n += c.Live
		}
		return n
	}
	before := countLive()
	for _, key := range []string{"window", "ring", "log", "token", "leaky", "hold", "list", "parent=x,child"} {
		askCounters(t, addr, client.CounterQuery{Descriptor: key + "=nobody yet"})
		resetCounters(t, addr, live.Selection{Domain: "d", Descriptor: key + "=nobody yet"})
	}
	if n := countLive(); n != before {
		t.Errorf("lookups have created %d counters", n-before)
	}
}

func TestBadCounterQueries(t *testing.T) {
	s := servertest.Service(t, answer.Settings{}, countersRules)
	addr, _ := debugServer(t, s)
	for _, tt := range []struct {
		method, query string
		code          int
		want          string
	}{
		{"GET", "descriptor=k=v", 400, "parameter domain is missing: write ?domain=D&descriptor=k=v,k2=v2"},
		{"GET", "domain=d", 400, "parameter descriptor is missing: write ?domain=D&descriptor=k=v,k2=v2"},
		{"GET", "domain=d&descriptor==v", 400, `descriptor "=v" has an entry without a key: write k=v,k2=v2`},
		{"GET", "domain=d&descriptor=a&descriptor=b", 400, `parameter "descriptor" is given 2 times: only one descriptor is allowed`},
		{"GET", "domain=d&descriptor=a&hits=5", 400, `unknown parameter "hits" (allowed: domain, descriptor, limit)`},
		{"GET", "domain=d&descriptor=a=&limit=5/week", 400, `limit "5/week": write 5/hour or 100/10minute, the unit one of second, minute, hour, day, month, year`},
		{"GET", "domain=d;descriptor=a", 400, "failed to parse the query: invalid semicolon separator in query"},
		{"POST", "domain=d&descriptor=window=v", 405, "method POST is not allowed, only GET, HEAD"},
		{"PUT", "domain=d&descriptor=window=v", 405, "method PUT is not allowed, only GET, HEAD"},
	} {
		code, _, body := askHTTP(t, tt.method, "http://"+addr+"/counters?"+tt.query)
		var failed struct{ Error string }
		if err := json.Unmarshal([]byte(body), &failed); err != nil || code != tt.code || failed.Error != tt.want {
			t.Errorf("%s %s = %d %s, want %d %q", tt.method, tt.query, code, body, tt.code, tt.want)
		}
	}
	if _, err := (&client.Debug{Addr: addr}).Counters(t.Context(), client.CounterQuery{Domain: "d", Descriptor: "=v"}); err == nil || !strings.Contains(err.Error(), "400 Bad Request: descriptor") {
		t.Errorf("the client returns %v, want the error of the server", err)
	}
	empty, _ := debugServer(t, servertest.Service(t, answer.Settings{}, ""))
	if code, _, body := askHTTP(t, http.MethodGet, "http://"+empty+"/counters?domain=d&descriptor=k="); code != 503 || !strings.Contains(body, "no rate limit configuration loaded") {
		t.Errorf("without rules: %d %s", code, body)
	}
}

// TestCountersAreLocalOnly sends requests from other machines, through proxies and from web pages.
func TestCountersAreLocalOnly(t *testing.T) {
	s := servertest.Service(t, answer.Settings{}, countersRules)
	h := newAPI(t, s, zap.NewNop()).Handler(nil)
	const loop, far, localhost = "127.0.0.1:6070", "192.0.2.7:6070", "localhost:6070"
	for _, tt := range []struct {
		local, peer, host string
		header            string
		allowed           string // the allowed methods
	}{
		{loop, "127.0.0.1:5000", localhost, "", "GET DELETE"},
		{loop, "127.0.0.1:5000", "127.0.0.1:6070", "", "GET DELETE"},
		{"[::1]:6070", "[::1]:5000", "[::1]:6070", "", "GET DELETE"},
		{"[::ffff:127.0.0.1]:6070", "[::ffff:127.0.0.1]:5000", "LOCALHOST", "", "GET DELETE"},
		{loop, "127.0.0.1:5000", "localhost:16070", "", "GET DELETE"}, // kubectl port-forward 16070:6070
		{far, "192.0.2.8:5000", localhost, "", ""},
		{far, "127.0.0.6:5000", localhost, "", ""}, // a sidecar proxy that forwards requests from outside
		{loop, "192.0.2.8:5000", localhost, "", ""},
		{loop, "127.0.0.1:5000", "sluice.example:6070", "", ""}, // DNS rebinding
		{loop, "127.0.0.1:5000", "localhost.example", "", ""},
		{loop, "127.0.0.1:5000", "127.0.0.1.example:6070", "", ""},
		{loop, "127.0.0.1:5000", "", "", ""},
		{loop, "127.0.0.1:5000", localhost, "X-Forwarded-For: 192.0.2.8", ""},
		{loop, "127.0.0.1:5000", localhost, "Forwarded: for=192.0.2.8", ""},
		{loop, "127.0.0.1:5000", localhost, "Via: 1.1 proxy", ""},
		{loop, "127.0.0.1:5000", localhost, "Origin: http://evil.example", "GET"}, // which the page cannot read
		{loop, "127.0.0.1:5000", localhost, "Origin: null", "GET"},
		{"", "", "localhost", "", "GET DELETE"}, // a unix socket
	} {
		for _, request := range []struct{ right, method, target string }{
			{"GET", http.MethodGet, "/counters?domain=d&descriptor=window=alice"},
			{"DELETE", http.MethodPost, "/api/v1/reset?domain=d&descriptor=window=alice"},
			{"GET", http.MethodGet, "/api/v1/state"},
			{"DELETE", http.MethodPost, "/api/v1/reset?domain=d"},
			{"GET", http.MethodGet, "/"},
		} {
			r := httptest.NewRequest(request.method, request.target, nil)
			r.Header.Set("Accept", "text/html")
			var local net.Addr = &net.UnixAddr{Name: "/s", Net: "unix"}
			if tt.local != "" {
				a, err := net.ResolveTCPAddr("tcp", tt.local)
				if err != nil {
					t.Fatal(err)
				}
				local = a
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
			r.RemoteAddr, r.Host = tt.peer, tt.host
			if name, value, ok := strings.Cut(tt.header, ": "); ok {
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			servertest.Hit(t, s, "window", "alice", 10, nil)
			h.ServeHTTP(w, r)
			want := 403
			if strings.Contains(tt.allowed, request.right) {
				want = 200
			}
			if request.target == "/" { // other clients get the list of paths
				if got := strings.HasPrefix(w.Body.String(), "<!doctype html>"); got != (want == 200) || w.Code != 200 {
					t.Errorf("%s %+v = %d, a page: %t, want %t", request.target, tt, w.Code, got, want == 200)
				}
				continue
			}
			if w.Code != want || want == 403 && !strings.Contains(w.Body.String(), `"error"`) {
				t.Errorf("%s %s %+v = %d %s, want %d", request.method, request.target, tt, w.Code, w.Body, want)
			}
		}
	}
}

// TestPenaltyIsExplained looks up and resets a counter under a penalty.
func TestPenaltyIsExplained(t *testing.T) {
	s := servertest.Service(t, answer.Settings{TopKeys: live.Clear}, "{domain: d, descriptors: [{key: ip, rate_limit: {unit: minute, requests_per_unit: 2, penalty: [2m, 5m]}}]}")
	a := newAPI(t, s, zap.NewNop())
	a.Tick(time.Unix(0, int64(noon)))
	denied := func(at time.Duration, hits uint64) bool {
		t.Helper()
		x := &answer.Exchange{}
		request := servertest.OneDescriptor("ip", "a")
		request.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
		if _, _, err := s.Answer(noon+limiter.Time(at), 0, x, servertest.Marshal(t, request)); err != nil {
			t.Fatal(err)
		}
		return x.OverLimit()
	}
	explain := func() *admin.CounterState {
		t.Helper()
		d := descriptors.Descriptor{Entries: []descriptors.Entry{{Key: []byte("ip"), Value: []byte("a")}}}
		r, err := a.Counters(noon+limiter.Time(90*time.Second), "d", "ip=a", d)
		if err != nil {
			t.Fatal(err)
		}
		return &r.Counters[0]
	}
	for range 3 {
		denied(0, 1)
	}
	at := time.Unix(0, int64(noon)).Add(2 * time.Minute).UTC()
	if c := explain(); !c.Over || c.Used != 0 || c.Penalty != 1 || c.PenaltyFor != 30 || c.ResetsIn != 30 || !c.ResetsAt.Equal(at) {
		t.Errorf("%+v", c)
	}
	keys := a.State(time.Unix(0, int64(noon)), admin.AllRules).Domains[0].DeniedKeys
	if len(keys) != 1 || keys[0].Descriptor != "ip=a" || keys[0].PenaltyUntil == nil || !keys[0].PenaltyUntil.Equal(at) {
		t.Errorf("the state has %+v", keys)
	}
	_, err := a.ResetCounters(t.Context(), noon+limiter.Time(90*time.Second), live.Selection{Domain: "d", Descriptor: "ip=a"}, true)
	must.OK(t, err)
	if c := explain(); c.Over || c.Penalty != 0 || c.PenaltyFor != 0 {
		t.Errorf("after a reset: %+v", c)
	}
	if denied(90*time.Second, 2) {
		t.Error("after a reset the client is denied")
	}
}
