package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

const usageRules = `
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: daily, unit: day, requests_per_unit: 100 }
      - { name: secret, unit: hour, requests_per_unit: 50, hidden: true }
      - { name: tried, unit: day, requests_per_unit: 5, shadow: true }
      - { name: included, unit: minute, unit_multiplier: 10, requests_per_unit: 5, soft: true }
  - key: org
    rate_limit: { name: whole, unit: year, requests_per_unit: 7 }
    descriptors:
      - key: user
        rate_limit: { name: nested, unit: year, unit_multiplier: 2, requests_per_unit: 10, algorithm: token_bucket, burst: 20 }
  - { key: slow, rate_limit: { name: running, unit: hour, requests_per_unit: 3, algorithm: concurrency } }
  - { key: tokens, rate_limit: { name: tokens, unit: day, requests_per_unit: 100, reserve: { amount: 30 } } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 5 } }
  - { key: free, rate_limit: { unlimited: true } }
`

// requestUsage requests /usage with the given headers, in the form name: value.
func requestUsage(t *testing.T, addr string, headers ...string) (code int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/usage", http.NoBody)
	must.OK(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	must.OK(t, err)
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	must.OK(t, err)
	return response.StatusCode, string(b)
}

// TestUsage reads the usage of several descriptors, of counters in memory and of those that a store
// decides. No reading counts.
func TestUsage(t *testing.T) {
	settings := answer.Settings{Clock: clock.FromFunc(func() (limiter.Time, time.Duration) { return servertest.Noon, 0 })}
	t.Run("memory", func(t *testing.T) { testUsage(t, service(t, settings, usageRules)) })
	t.Run("store", func(t *testing.T) {
		store := &asyncStore{table: newTable(t)}
		t.Cleanup(store.deciding.Wait)
		settings.Decider, settings.Namer = store, descriptors.NewNamer("p:", nil)
		testUsage(t, serviceOn(t, store.table, settings, usageRules))
	})
}

func testUsage(t *testing.T, s *answer.Service) {
	t.Helper()
	addr := serve(t, s, Options{Usage: true}).addr["http"]
	hit := func(key, value string, hits uint64) {
		request := servertest.OneDescriptor(key, value)
		if hits > 0 {
			request.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
		}
		_, _, err := s.Answer(servertest.Noon, time.Hour, &answer.Exchange{}, servertest.Marshal(t, request))
		must.OK(t, err)
	}
	hit("user", "alice", 7)
	hit("user", "a,&org=acme", 1)
	hit("user", `alice "`, 2)
	hit("slow", "alice", 1)
	hit("tokens", "alice", 0) // reserves 30
	hit("tokens", "alice", 12)
	// The clock runs.
	seconds := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".ResetsIn" }, cmp.Comparer(func(x, y uint64) bool {
		return x == 0 && y == 0 || min(x, y) > 0 && max(x, y)-min(x, y) < 60
	}))
	noon := time.Unix(0, int64(servertest.Noon)).UTC()
	daily := func(used, remaining uint64) admin.LimitUsage {
		return admin.LimitUsage{Name: "daily", Limit: 100, Window: "day", Used: used, Remaining: remaining, ResetsIn: 12 * 3600, ResetsAt: new(noon.Add(12 * time.Hour))}
	}
	included := func(used, remaining uint64) admin.LimitUsage {
		return admin.LimitUsage{Name: "included", Limit: 5, Window: "10minute", Used: used, Remaining: remaining, ResetsIn: 600, ResetsAt: new(noon.Add(10 * time.Minute)), Soft: true}
	}
	for _, tt := range []struct {
		name    string
		entries []string
		want    []admin.LimitUsage
	}{
		{"a descriptor", []string{"user=alice"}, []admin.LimitUsage{daily(7, 93), included(7, 0)}},
		{"several", []string{"org=acme", "user=alice"}, []admin.LimitUsage{{Name: "whole", Limit: 7, Window: "year", Remaining: 7}, daily(7, 93), included(7, 0)}},
		{"of two entries", []string{"org=acme", "&user=alice"}, []admin.LimitUsage{{Name: "nested", Limit: 10, Window: "2year", Burst: 20, Remaining: 20}}},
		{"a value that looks like an entry", []string{"user=a,&org=acme"}, []admin.LimitUsage{daily(1, 99), included(1, 4)}},
		{"spaces and quotes at the end", []string{`"user=alice ""`}, []admin.LimitUsage{daily(2, 98), included(2, 3)}},
		{"quotes of a value", []string{`user="alice"`}, []admin.LimitUsage{{Name: "daily", Limit: 100, Window: "day", Remaining: 100}, {Name: "included", Limit: 5, Window: "10minute", Remaining: 5, Soft: true}}},
		{"permits", []string{"slow=alice"}, []admin.LimitUsage{{Name: "running", Limit: 3, Used: 1, Remaining: 2, Held: new(uint64(1))}}},
		{"reserved hits", []string{"tokens=alice"}, []admin.LimitUsage{{
			Name: "tokens", Limit: 100, Window: "day", Used: 42, Remaining: 58, ResetsIn: 12 * 3600, ResetsAt: new(noon.Add(12 * time.Hour)), Held: new(uint64(30)),
		}}},
		{"none reserved", []string{"tokens=bob"}, []admin.LimitUsage{{Name: "tokens", Limit: 100, Window: "day", Remaining: 100, Held: new(uint64(0))}}},
		{"in shadow mode", []string{"tried=a"}, []admin.LimitUsage{}},
		{"unlimited", []string{"free=a"}, []admin.LimitUsage{}},
		{"no rule", []string{"other=a"}, []admin.LimitUsage{}},
	} {
		headers := []string{"x-sluice-domain: d"}
		for _, e := range tt.entries {
			headers = append(headers, "x-sluice-descriptor: "+e)
		}
		for range 2 {
			code, text := requestUsage(t, addr, headers...)
			var got admin.Usage
			if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK {
				t.Fatalf("%s: %d %s, %v", tt.name, code, text, err)
			}
			if diff := cmp.Diff(tt.want, got.Limits, cmpopts.EquateApproxTime(time.Minute), seconds); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
	}
}

// TestUsageRejects sends requests without valid headers, and to listeners that do not serve /usage.
func TestUsageRejects(t *testing.T) {
	s := service(t, answer.Settings{}, usageRules)
	addr := serve(t, s, Options{Usage: true}).addr["http"]
	many := []string{"x-sluice-domain: d"}
	for range maxUsageDescriptors + 1 {
		many = append(many, "x-sluice-descriptor: user=a")
	}
	long := []string{"x-sluice-domain: d", "x-sluice-descriptor: user=a"}
	for range s.Settings().Bounds.Entries {
		long = append(long, "x-sluice-descriptor: &user=a")
	}
	for _, tt := range []struct {
		headers []string
		code    int
		want    string
	}{
		{[]string{"x-sluice-descriptor: user=a"}, 400, "0 headers x-sluice-domain"},
		{[]string{"x-sluice-domain: e", "x-sluice-domain: d", "x-sluice-descriptor: user=a"}, 400, "2 headers x-sluice-domain"},
		{[]string{"x-sluice-domain: d"}, 400, "no header x-sluice-descriptor"},
		{[]string{"x-sluice-domain: d", "x-sluice-descriptor: user"}, 400, "is not key=value"},
		{[]string{"x-sluice-domain: d", "x-sluice-descriptor: =a"}, 400, "is not key=value"},
		{[]string{"x-sluice-domain: d", `x-sluice-descriptor: "user=a`}, 400, "does not end with"},
		{[]string{"x-sluice-domain: d", `x-sluice-descriptor: "`}, 400, "does not end with"},
		{[]string{"x-sluice-domain: d", "x-sluice-descriptor: &user=a"}, 400, "begins with &"},
		{many, 400, "more than 16 descriptors"},
		{long, 400, "entries"},
		{[]string{"x-sluice-domain: d", "x-sluice-descriptor: " + strings.Repeat("k", 2000) + "=a"}, 400, "a key has 2000 bytes"},
		{[]string{"x-sluice-domain: other", "x-sluice-descriptor: user=a"}, 404, "no rules for this domain"},
	} {
		if code, text := requestUsage(t, addr, tt.headers...); code != tt.code || !strings.Contains(text, tt.want) {
			t.Errorf("%.100q: %d %q, want %d with %q", tt.headers, code, text, tt.code, tt.want)
		}
	}
	if code, text := send(t, http.MethodPost, "http://"+addr+"/usage", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d %s", code, text)
	}
	off := serve(t, s, Options{})
	for name, addr := range map[string]string{"off": off.addr["http"], "debug": off.addr["debug"], "metrics": off.addr["metrics"]} {
		if code, text := requestUsage(t, addr, "x-sluice-domain: d", "x-sluice-descriptor: user=a"); code != http.StatusNotFound {
			t.Errorf("%s: %d %s, want 404", name, code, text)
		}
	}
}

// TestUsageByCertificate checks that with an allow list, /usage is only served over TLS, and only to
// clients that may use the domain.
func TestUsageByCertificate(t *testing.T) {
	for _, jsonAddr := range []string{"", "127.0.0.1:0"} {
		g := serveGuarded(t, Options{JSONAddr: jsonAddr, Usage: true}, shopEnvoy+"=d")
		if code, text := requestUsage(t, g.addr["http"], "x-sluice-domain: d", "x-sluice-descriptor: k=v"); code != http.StatusForbidden || !strings.Contains(text, "/usage is only served over TLS") {
			t.Errorf("in plain text: %d %s, want 403", code, text)
		}
		if jsonAddr == "" {
			continue
		}
		for _, tt := range []struct {
			name, domain string
			want         int
		}{{shopEnvoy, "d", 200}, {shopEnvoy, "other", 403}, {"stranger.example.com", "d", 403}} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/usage", http.NoBody)
			must.OK(t, err)
			r.Header = http.Header{"X-Sluice-Domain": {tt.domain}, "X-Sluice-Descriptor": {"k=v"}}
			code, text, err := g.do(t, r, issue(t, g.ours, testcert.Leaf{Names: []string{tt.name}}))
			if err != nil || code != tt.want {
				t.Errorf("%s requests %s: %v, %v, want %d", tt.name, tt.domain, fmt.Sprint(code, text), err, tt.want)
			}
		}
	}
}
