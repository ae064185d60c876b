package server

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
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

// debugServer is the debug listener of a service on loopback, with its log.
func debugServer(t *testing.T, s *answer.Service) (addr string, logs *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	srv := httptest.NewServer(debugHandler(answer.NewHandler(s, zap.New(core), nil, false), DebugRights{}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://"), logs
}

// hitCounter takes hits of one descriptor, with its own limit unless that is nil.
func hitCounter(t *testing.T, s *answer.Service, key, value string, hits uint64, limit *rlcommon.RateLimitDescriptor_RateLimitOverride) {
	t.Helper()
	request := &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries: []*rlcommon.RateLimitDescriptor_Entry{entry(key, value)}, HitsAddend: wrapperspb.UInt64(hits), Limit: limit,
	}}}
	if _, _, err := s.Answer(limiter.Time(time.Now().UnixNano()), time.Hour, &answer.Exchange{}, marshal(t, request)); err != nil {
		t.Fatal(err)
	}
}

func askCounters(t *testing.T, addr string, q CounterQuery) *answer.CounterReport {
	t.Helper()
	q.Domain = "d"
	report, err := (&DebugClient{Addr: addr}).Counters(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestCountersAreLookedUpAndReset does both for each algorithm. All windows are long, so
// that the test's own time does not matter.
func TestCountersAreLookedUpAndReset(t *testing.T) {
	s := service(t, answer.Settings{}, countersRules)
	addr, logs := debugServer(t, s)
	for _, tt := range []struct {
		key  string
		hits []uint64
		want []answer.CounterState
	}{
		{"window", []uint64{3}, []answer.CounterState{{Limit: "5/year", Name: "yearly", Used: 3, Capacity: 5, Remaining: 2}}},
		{"window", []uint64{5, 3}, []answer.CounterState{{Limit: "5/year", Name: "yearly", Used: 8, Capacity: 5, Over: true, Denied: true}}},
		{"ring", []uint64{5, 1}, []answer.CounterState{{Limit: "5/year, sliding_window of 10 sub-windows", Used: 6, Capacity: 5, Over: true, Denied: true}}},
		{"log", []uint64{2, 2}, []answer.CounterState{{Limit: "5/year, sliding_log", Used: 4, Capacity: 5, Remaining: 1}}},
		{"token", []uint64{7}, []answer.CounterState{{Limit: "5/year, token_bucket, burst 7", Used: 7, Capacity: 7}}},
		{"token", []uint64{7, 1}, []answer.CounterState{{Limit: "5/year, token_bucket, burst 7", Used: 8, Capacity: 7, Over: true, Denied: true}}},
		{"leaky", []uint64{1}, []answer.CounterState{{Limit: "5/year, leaky_bucket, slack 1", Used: 1, Capacity: 2, Remaining: 1}}},
		{"list", []uint64{2}, []answer.CounterState{
			{Limit: "5/year", Used: 2, Capacity: 5, Remaining: 3},
			{Limit: "50/month, sliding_window of 10 sub-windows", Used: 2, Capacity: 50, Remaining: 48},
		}},
	} {
		ignore := cmpopts.IgnoreFields(answer.CounterState{}, "Key", "ResetsIn", "ResetsAt")
		q := CounterQuery{Descriptor: tt.key + "=alice"}
		for _, n := range tt.hits {
			hitCounter(t, s, tt.key, "alice", n, nil)
		}
		hitCounter(t, s, tt.key, "bob", 1, nil)
		for range 3 { // a peek changes nothing
			report := askCounters(t, addr, q)
			if diff := cmp.Diff(tt.want, report.Counters, ignore); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.key, diff)
			}
			if report.Rule != tt.key || !strings.Contains(report.Explanation, "key only  "+tt.key+": hit") || report.ConfigHash != s.Rules().Hash {
				t.Errorf("%s: report is %+v", tt.key, report)
			}
			for _, c := range report.Counters {
				if in := time.Until(*c.ResetsAt).Seconds(); c.ResetsIn < 1 || math.Abs(in-c.ResetsIn) > 60 {
					t.Errorf("%s resets in %v s, at %v", tt.key, c.ResetsIn, c.ResetsAt)
				}
			}
		}
		q.Reset = true
		before := testutil.ToFloat64(s.Metrics().CounterResets)
		for i, c := range askCounters(t, addr, q).Counters {
			if c.Forgotten != tt.want[i].Used || c.Used != 0 || c.Over || c.Remaining != c.Capacity || c.ResetsAt != nil {
				t.Errorf("%s after the reset: %+v", tt.key, c)
			}
		}
		if n := testutil.ToFloat64(s.Metrics().CounterResets) - before; n != float64(len(tt.want)) {
			t.Errorf("%s: %v resets were counted, want %d", tt.key, n, len(tt.want))
		}
		if c := askCounters(t, addr, CounterQuery{Descriptor: tt.key + "=bob"}).Counters[0]; c.Used == 0 {
			t.Errorf("%s: the counter of bob was reset too", tt.key)
		}
	}
	found := logs.FilterMessage("counter reset").All()
	if len(found) == 0 || found[0].ContextMap()["domain"] != "d" || found[0].ContextMap()["rule"] != "window" || found[0].Level != zap.InfoLevel {
		t.Errorf("log is %v", found)
	}
	for _, e := range logs.All() {
		if text := e.Message + " " + jsonText(t, e.ContextMap()); strings.Contains(text, "alice") {
			t.Errorf("a client's value is in the log: %s", text)
		}
	}
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestCountersOfWhatIsNotPlain peeks at shared counters, overrides, counters whose
// hits would wait, and descriptors without a counter.
func TestCountersOfWhatIsNotPlain(t *testing.T) {
	table := newTable(t)
	s := serviceOn(t, table, answer.Settings{}, countersRules)
	addr, _ := debugServer(t, s)
	hitCounter(t, s, "shared", "alice", 2, nil)
	if c := askCounters(t, addr, CounterQuery{Descriptor: "shared=adam"}).Counters[0]; c.Used != 2 {
		t.Errorf("the shared counter is %+v, want 2 used", c)
	}
	own := &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 9, Unit: 6}
	hitCounter(t, s, "window", "alice", 4, own)
	hitCounter(t, s, "nobody", "alice", 3, own)
	for descriptor, used := range map[string]uint64{"window=alice": 4, "nobody=alice": 3} {
		report := askCounters(t, addr, CounterQuery{Descriptor: descriptor, Limit: "9/year"})
		if len(report.Counters) != 1 || report.Counters[0].Used != used || report.Counters[0].Limit != "9/year" || report.Rule != "" {
			t.Errorf("%s with a limit of its own: %+v", descriptor, report)
		}
		if c := askCounters(t, addr, CounterQuery{Descriptor: descriptor, Limit: "9/year", Reset: true}).Counters[0]; c.Forgotten != used {
			t.Errorf("%s: the reset is %+v", descriptor, c)
		}
	}
	if r := askCounters(t, addr, CounterQuery{Descriptor: "log=alice", Limit: "5000/year"}); r.Rule != "log" || !strings.Contains(r.Reason, "cannot be used") {
		t.Errorf("with an unusable limit: %+v", r)
	}
	if c := askCounters(t, addr, CounterQuery{Descriptor: "hold=alice"}).Counters[0]; c.Capacity != 61 || c.Remaining != 61 {
		t.Errorf("a bucket that holds replies: %+v, want room for 61", c)
	}
	for descriptor, reason := range map[string]string{
		"free=alice":   "an unlimited rule has no counter",
		"nobody=alice": "no descriptor matches entry 1",
		"parent=alice": "has no limit; only those below it do",
		"":             "a descriptor without entries matches nothing",
	} {
		if r := askCounters(t, addr, CounterQuery{Descriptor: descriptor}); len(r.Counters) != 0 || !strings.Contains(r.Reason, reason) {
			t.Errorf("%q: %+v, want the reason %q", descriptor, r, reason)
		}
	}
	live := table.Live(limiter.Time(time.Now().UnixNano()))
	for _, key := range []string{"window", "ring", "log", "token", "leaky", "hold", "list", "parent=x,child"} {
		askCounters(t, addr, CounterQuery{Descriptor: key + "=nobody yet"})
		askCounters(t, addr, CounterQuery{Descriptor: key + "=nobody yet", Reset: true})
	}
	if n := table.Live(limiter.Time(time.Now().UnixNano())); n != live {
		t.Errorf("peeks made %d counters", n-live)
	}
}

func TestCounterQueriesGetAClearAnswer(t *testing.T) {
	s := service(t, answer.Settings{}, countersRules)
	addr, _ := debugServer(t, s)
	for _, tt := range []struct {
		method, query string
		code          int
		want          string
	}{
		{"GET", "descriptor=k=v", 400, "parameter domain is missing: write ?domain=D&descriptor=k=v,k2=v2"},
		{"GET", "domain=d", 400, "parameter descriptor is missing: write ?domain=D&descriptor=k=v,k2=v2"},
		{"GET", "domain=d&descriptor==v", 400, `descriptor "=v" has an entry without a key: write k=v,k2=v2`},
		{"GET", "domain=d&descriptor=a&descriptor=b", 400, `parameter "descriptor" is given 2 times: one descriptor is asked for at a time`},
		{"GET", "domain=d&descriptor=a&hits=5", 400, `unknown parameter "hits" (allowed: domain, descriptor, limit)`},
		{"GET", "domain=d&descriptor=a&limit=5/week", 400, `limit "5/week": write 5/hour or 100/10minute, the unit one of second, minute, hour, day, month, year`},
		{"GET", "domain=d;descriptor=a", 400, "the query does not parse: invalid semicolon separator in query"},
		{"DELETE", "domain=d&descriptor=nobody", 404, "there is no counter to reset: no descriptor matches entry 1; there is no way back to another branch"},
		{"DELETE", "domain=x&descriptor=nobody", 404, `there is no counter to reset: domain "x" is not configured, so nothing is limited`},
		{"POST", "domain=d&descriptor=window=v", 405, "method POST: must be GET to look up or DELETE to reset"},
		{"PUT", "domain=d&descriptor=window=v", 405, "method PUT: must be GET to look up or DELETE to reset"},
	} {
		code, body := send(t, tt.method, "http://"+addr+"/counters?"+tt.query, "")
		var failed struct{ Error string }
		if err := json.Unmarshal([]byte(body), &failed); err != nil || code != tt.code || failed.Error != tt.want {
			t.Errorf("%s %s = %d %s, want %d %q", tt.method, tt.query, code, body, tt.code, tt.want)
		}
	}
	if _, err := (&DebugClient{Addr: addr}).Counters(t.Context(), CounterQuery{Domain: "d", Descriptor: "=v"}); err == nil || !strings.Contains(err.Error(), "400 Bad Request: descriptor") {
		t.Errorf("the client says %v", err)
	}
	empty, _ := debugServer(t, service(t, answer.Settings{}, ""))
	if code, body := get(t, "http://"+empty+"/counters?domain=d&descriptor=k"); code != 503 || !strings.Contains(body, "no rate limit configuration loaded") {
		t.Errorf("without rules: %d %s", code, body)
	}
}

// TestCountersAnswerThisMachineAlone asks from elsewhere, through proxies and from
// pages of browsers.
func TestCountersAnswerThisMachineAlone(t *testing.T) {
	s := service(t, answer.Settings{}, countersRules)
	h := debugHandler(answer.NewHandler(s, zap.NewNop(), nil, false), DebugRights{})
	const loop, far, localhost = "127.0.0.1:6070", "192.0.2.7:6070", "localhost:6070"
	for _, tt := range []struct {
		own, peer, host string
		headers         string
		allowed         string // the methods that are answered
	}{
		{loop, "127.0.0.1:5000", localhost, "", "GET DELETE"},
		{loop, "127.0.0.1:5000", "127.0.0.1:6070", "", "GET DELETE"},
		{"[::1]:6070", "[::1]:5000", "[::1]:6070", "", "GET DELETE"},
		{"[::ffff:127.0.0.1]:6070", "[::ffff:127.0.0.1]:5000", "LOCALHOST", "", "GET DELETE"},
		{loop, "127.0.0.1:5000", "localhost:16070", "", "GET DELETE"}, // kubectl port-forward 16070:6070
		{far, "192.0.2.8:5000", localhost, "", ""},
		{far, "127.0.0.6:5000", localhost, "", ""}, // a sidecar proxy that forwards what came from outside
		{loop, "192.0.2.8:5000", localhost, "", ""},
		{loop, "127.0.0.1:5000", "sluice.example:6070", "", ""}, // a page whose name was bound to loopback
		{loop, "127.0.0.1:5000", "localhost.example", "", ""},
		{loop, "127.0.0.1:5000", "127.0.0.1.example:6070", "", ""},
		{loop, "127.0.0.1:5000", "", "", ""},
		{loop, "127.0.0.1:5000", localhost, "X-Forwarded-For: 192.0.2.8", ""},
		{loop, "127.0.0.1:5000", localhost, "Forwarded: for=192.0.2.8", ""},
		{loop, "127.0.0.1:5000", localhost, "Via: 1.1 proxy", ""},
		{loop, "127.0.0.1:5000", localhost, "Sec-Fetch-Site: cross-site", "GET"}, // which the page cannot read
		{loop, "127.0.0.1:5000", localhost, "Origin: http://evil.example", "GET"},
		{loop, "127.0.0.1:5000", localhost, "Origin: null", "GET"},
		{"", "", "localhost", "", "GET DELETE"}, // a unix socket
	} {
		for _, ask := range []struct{ may, method, target string }{
			{"GET", http.MethodGet, "/counters?domain=d&descriptor=window=alice"},
			{"DELETE", http.MethodDelete, "/counters?domain=d&descriptor=window=alice"},
			{"GET", http.MethodGet, "/api/v1/state"},
			{"DELETE", http.MethodPost, "/api/v1/reset?domain=d"},
			{"GET", http.MethodGet, "/"},
		} {
			r := httptest.NewRequest(ask.method, ask.target, nil)
			r.Header.Set("Accept", "text/html")
			var own net.Addr = &net.UnixAddr{Name: "/s", Net: "unix"}
			if tt.own != "" {
				a, err := net.ResolveTCPAddr("tcp", tt.own)
				if err != nil {
					t.Fatal(err)
				}
				own = a
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, own))
			r.RemoteAddr, r.Host = tt.peer, tt.host
			if name, value, ok := strings.Cut(tt.headers, ": "); ok {
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			hitCounter(t, s, "window", "alice", 10, nil)
			h.ServeHTTP(w, r)
			want := 403
			if strings.Contains(tt.allowed, ask.may) {
				want = 200
			}
			if ask.target == "/" { // others get the list of what listens here
				if got := strings.HasPrefix(w.Body.String(), "<!doctype html>"); got != (want == 200) || w.Code != 200 {
					t.Errorf("%s %+v = %d, a page: %t, want %t", ask.target, tt, w.Code, got, want == 200)
				}
				continue
			}
			if w.Code != want || want == 403 && !strings.Contains(w.Body.String(), `"error"`) {
				t.Errorf("%s %s %+v = %d %s, want %d", ask.method, ask.target, tt, w.Code, w.Body, want)
			}
		}
	}
}

// TestDebugListenerSaysThatItIsOpen holds the log line of one that is not on
// loopback, and that /counters is off for clients of another address.
func TestDebugListenerSaysThatItIsOpen(t *testing.T) {
	const warning = "the debug listener has no authentication and can be reached from other machines; counters and the state answer to this machine alone"
	for addr, want := range map[string]int{"0.0.0.0:0": 1, "[::]:0": 1, "127.0.0.1:0": 0, "[::1]:0": 0, abstractSocket(t): 0} {
		core, logs := observer.New(zap.WarnLevel)
		s := service(t, answer.Settings{}, oneRule)
		srv := New(Options{DebugAddr: addr}, s, zap.New(core))
		if err := srv.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		srv.close()
		if n := logs.FilterMessage(warning).Len(); n != want {
			t.Errorf("on %s it warns %d times, want %d", addr, n, want)
		}
	}
}

// abstractSocket returns an address that no other process uses: such names are those of the whole machine.
func abstractSocket(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("unix:@%s-%d", t.Name(), os.Getpid())
}

func TestCountersOverAUnixSocket(t *testing.T) {
	s := service(t, answer.Settings{}, countersRules)
	addr := abstractSocket(t)
	serve(t, s, Options{DebugAddr: addr})
	hitCounter(t, s, "window", "a&b=c", 2, nil)
	if c := askCounters(t, addr, CounterQuery{Descriptor: `window=a&b\=c`}).Counters[0]; c.Used != 2 {
		t.Errorf("the counter is %+v, want 2 used", c)
	}
	long := strings.Repeat("ü", 30_000) // of a request of 64 KiB, and six bytes each in a query
	hitCounter(t, s, "window", long, 3, nil)
	if c := askCounters(t, addr, CounterQuery{Descriptor: "window=" + long}).Counters[0]; c.Used != 3 {
		t.Errorf("the counter of a long value is %+v, want 3 used", c)
	}
	_, err := (&DebugClient{Addr: addr}).Counters(t.Context(), CounterQuery{Domain: "d", Descriptor: "window=" + strings.Repeat(long, 10)})
	if err == nil || !strings.Contains(err.Error(), "the descriptor is longer than what can be asked for") {
		t.Errorf("the error for what is too long is %v", err)
	}
	if _, err := (&DebugClient{Addr: "unix:@nobody"}).Counters(t.Context(), CounterQuery{}); err == nil {
		t.Error("nobody answers, want an error")
	}
}

func FuzzCounterQuery(f *testing.F) {
	f.Add("domain=d&descriptor=k=v,k2=v2&limit=5/hour")
	f.Add("domain=&descriptor=%")
	f.Fuzz(func(t *testing.T, query string) {
		q, d, err := parseCounterQuery(query)
		if err != nil {
			if err.Error() == "" || len(err.Error()) > 1000+4*len(query) {
				t.Errorf("parseCounterQuery(%q) = %q", query, err)
			}
			return
		}
		values, _ := url.ParseQuery(query)
		if q.Domain == "" || q.Domain != values.Get("domain") || q.Descriptor != values.Get("descriptor") || d.HasHits || d.Refund {
			t.Errorf("parseCounterQuery(%q) = %+v, %+v", query, q, d)
		}
	})
}
