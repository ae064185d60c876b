package answer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// denialRules deny everything, except the key open.
const denialRules = `
domain: d
denied_response: text
descriptors:
  - { key: inherits, rate_limit: { unit: hour, requests_per_unit: 0, name: per-user } }
  - { key: silent, denied_response: none, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: open, denied_response: openai, rate_limit: { unit: hour, requests_per_unit: 9 } }
  - { key: openai, denied_response: openai, rate_limit: { unit: minute, requests_per_unit: 0, name: "a\"b\\c\u0001d" } }
  - { key: later, denied_response: openai, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: anthropic, value: x, denied_response: anthropic, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - key: problem
    denied_response: problem
    rate_limits: [{ unit: hour, requests_per_unit: 0, name: hourly }, { unit: day, requests_per_unit: 0, name: 'da"ily' }]
  - key: own
    denied_response:
      content_type: application/json
      body: '{"n":"{name}","v":[{limit},{window},{retry_after},{reset}],"d":"{domain}"}'
      headers: { x-plan: free, x-again: "{retry_after} of {name}" }
      grpc: true
    rate_limit: { unit: minute, unit_multiplier: 2, requests_per_unit: 0, name: mine }
`

// keyed returns a descriptor with the given key.
func keyed(key string) *rlcommon.RateLimitDescriptor {
	return &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry(key, "x")}}
}

// denied is the response to a denied request.
type denied struct {
	code    rls.RateLimitResponse_Code
	body    string
	headers []string // name: value
}

// ask sends a request with a descriptor for each key, at noon.
func ask(t *testing.T, s *Service, keys ...string) denied {
	t.Helper()
	request := &rls.RateLimitRequest{Domain: "d"}
	for _, key := range keys {
		request.Descriptors = append(request.Descriptors, keyed(key))
	}
	return askAt(t, s, noon, request)
}

func askAt(t *testing.T, s *Service, now limiter.Time, request *rls.RateLimitRequest) denied {
	t.Helper()
	var x Exchange
	b, _, err := s.Answer(now, 0, &x, marshal(t, request))
	must.OK(t, err)
	var reply rls.RateLimitResponse
	must.OK(t, proto.Unmarshal(b, &reply))
	got := denied{code: reply.GetOverallCode(), body: string(reply.GetRawBody())}
	for _, h := range reply.GetResponseHeadersToAdd() {
		got.headers = append(got.headers, h.GetKey()+": "+h.GetValue())
	}
	return got
}

// TestDeniedResponses checks the body and the headers of each kind of response, with their
// precedence. They are only part of denials.
func TestDeniedResponses(t *testing.T) {
	const over, ok = rls.RateLimitResponse_OVER_LIMIT, rls.RateLimitResponse_OK
	json := "content-type: application/json"
	for _, tt := range []struct {
		name     string
		settings Settings
		keys     []string
		want     denied
	}{
		{"the domain's", Settings{}, []string{"inherits"}, denied{
			over, "Too many requests: the limit per-user is exceeded. Try again in 3600 seconds.\n",
			[]string{"Retry-After: 3600", "content-type: text/plain; charset=utf-8"},
		}},
		{"none", Settings{}, []string{"silent"}, denied{over, "", nil}},
		{"shadow mode", Settings{}, []string{"shadow"}, denied{ok, "", nil}},
		{"shadow mode of the process", Settings{ShadowMode: true}, []string{"inherits"}, denied{ok, "", nil}},
		{"a request that passes", Settings{}, []string{"open"}, denied{ok, "", nil}},
		{"no rule", Settings{}, []string{"unknown"}, denied{ok, "", nil}},
		{"openai with a hostile name", Settings{RetryAfterHeader: true}, []string{"openai"}, denied{
			over, `{"error":{"message":"Rate limit a\"b\\c?d reached. Please try again in 60s.","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}` + "\n",
			[]string{"Retry-After: 60", json, "retry-after-ms: 60000"},
		}},
		{"openai after a long wait", Settings{}, []string{"later"}, denied{
			over, `{"error":{"message":"Rate limit later reached. Please try again in 43200s.","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}` + "\n",
			[]string{"Retry-After: 43200", json, "retry-after-ms: 43200000", "x-should-retry: false"},
		}},
		{"anthropic", Settings{}, []string{"anthropic"}, denied{
			over, `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit anthropic_x reached. Please try again in 3600s."}}` + "\n",
			[]string{"Retry-After: 3600", json, "retry-after-ms: 3600000", "x-should-retry: false"},
		}},
		{"problem lists all limits that deny", Settings{}, []string{"inherits", "open", "problem"}, denied{
			over, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded",` +
				`"detail":"The limit da\"ily is exceeded. Try again in 43200 seconds.","violated-policies":["per-user","hourly","da\"ily"]}` + "\n",
			[]string{"Retry-After: 43200", "content-type: application/problem+json"},
		}},
		{"problem lists a limit that two descriptors hit once", Settings{}, []string{"problem", "problem"}, denied{
			over, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded",` +
				`"detail":"The limit da\"ily is exceeded. Try again in 43200 seconds.","violated-policies":["hourly","da\"ily"]}` + "\n",
			[]string{"Retry-After: 43200", "content-type: application/problem+json"},
		}},
		{"the last denying descriptor describes the denial", Settings{}, []string{"problem", "silent"}, denied{over, "", nil}},
		{
			"Retry-After as a name of another header",
			Settings{ResponseHeaders: true, Headers: Headers{Reset: "retry-after"}, RetryAfterHeader: true},
			[]string{"inherits"},
			denied{
				over, "Too many requests: the limit per-user is exceeded. Try again in 3600 seconds.\n",
				[]string{"retry-after: 3600", "content-type: text/plain; charset=utf-8"},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ask(t, service(t, tt.settings, denialRules), tt.keys...)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(denied{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestQuotasThatDenyAreNamed sends, before a quota that denies, descriptors that have no remaining
// hits either and do not deny. The body and denied_by name the quota.
func TestQuotasThatDenyAreNamed(t *testing.T) {
	const rules = `
domain: d
denied_response: { body: "{name} {limit}" }
descriptors:
  - { key: tried, shadow_mode: true, denied_response: none, rate_limit: { unit: hour, requests_per_unit: 0, name: tried } }
  - { key: last, rate_limit: { unit: hour, requests_per_unit: 1, name: last } }
  - { key: quota, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 0, name: quota } }
`
	for _, other := range []string{"tried", "last"} {
		s := service(t, Settings{DeniedBy: true}, rules)
		request := marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{keyed(other), keyed("quota")}})
		b, _, err := s.Answer(noon, 0, &Exchange{}, request)
		must.OK(t, err)
		var reply rls.RateLimitResponse
		must.OK(t, proto.Unmarshal(b, &reply))
		by := reply.GetDynamicMetadata().GetFields()["denied_by"].GetStringValue()
		if body := string(reply.GetRawBody()); body != "quota 0" || by != "quota" {
			t.Errorf("%s and quota: body %q, denied_by %q; want the quota", other, body, by)
		}
	}
}

// TestRetryAfter checks that clients retry when the request would pass: when all limits admit it, and
// one of the quotas. With more hits than a limit has they do not retry.
func TestRetryAfter(t *testing.T) {
	const rules = `
domain: d
denied_response: { body: "{retry_after}" }
descriptors:
  - { key: short, quota_mode: true, rate_limit: &short { unit: second, unit_multiplier: 4, requests_per_unit: 1, algorithm: token_bucket } }
  - { key: long, quota_mode: true, rate_limit: &long { unit: minute, requests_per_unit: 1, algorithm: token_bucket } }
  - { key: list, quota_mode: true, rate_limits: [*long, *short] }
  - { key: passes, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 100 } }
  - { key: user, rate_limit: { unit: second, unit_multiplier: 30, requests_per_unit: 1, algorithm: token_bucket } }
  - { key: users, rate_limits: [*long, *short] }
---
domain: all
all_or_nothing: true
denied_response: { body: "{retry_after}" }
descriptors:
  - { key: long, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1, algorithm: token_bucket } }
  - { key: passes, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 100 } }
  - { key: tried, quota_mode: true, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: user, rate_limit: { unit: second, unit_multiplier: 4, requests_per_unit: 1, algorithm: token_bucket } }
`
	for _, tt := range []struct {
		domain, keys, hits string
		quotaMode          bool
		seconds            int
		never              bool
	}{
		{"d", "short", "1", false, 4, false},
		{"d", "long short", "1 1", false, 4, false},
		{"d", "short long", "1 1", false, 4, false},
		{"d", "list", "1", false, 4, false},
		{"d", "long list", "1 1", false, 4, false},
		{"d", "short user", "1 1", false, 30, false},
		{"d", "long user", "1 1", false, 60, false},
		{"d", "long passes user", "1 1 1", false, 30, false},
		{"all", "long passes user", "1 1 1", false, 4, false},
		{"all", "long tried user", "1 1 1", false, 4, false},
		{"d", "users", "1", false, 60, false},
		{"d", "users", "1", true, 4, false},
		{"d", "user short long", "1 1 1", true, 4, false},
		{"d", "user", "2", false, 30, true},
		{"d", "user short", "1 2", false, 30, true},
		{"d", "users", "2", false, 60, true},
		{"d", "short long", "2 1", false, 60, false},
		{"d", "long short", "1 2", false, 60, false},
		{"d", "long short", "2 2", false, 4, true},
	} {
		s := service(t, Settings{GRPCDenials: true, RetryAfterHeader: true, QuotaMode: tt.quotaMode}, rules)
		request := &rls.RateLimitRequest{Domain: tt.domain}
		hits := strings.Fields(tt.hits)
		for i, key := range strings.Fields(tt.keys) {
			d := keyed(key)
			askAt(t, s, noon, &rls.RateLimitRequest{Domain: tt.domain, Descriptors: []*rlcommon.RateLimitDescriptor{d}})
			n, err := strconv.ParseUint(hits[i], 10, 64)
			must.OK(t, err)
			d.HitsAddend = wrapperspb.UInt64(n)
			request.Descriptors = append(request.Descriptors, d)
		}
		pushback := strconv.Itoa(tt.seconds * 1000)
		if tt.never {
			pushback = "-1"
		}
		got := askAt(t, s, noon, request)
		if want := strconv.Itoa(tt.seconds); got.body != want || !slices.Contains(got.headers, "Retry-After: "+want) || !slices.Contains(got.headers, "grpc-retry-pushback-ms: "+pushback) {
			t.Errorf("%+v: the body is %s, and the headers are %q", tt, got.body, got.headers)
		}
	}
	s := service(t, Settings{DeniedResponse: "openai"}, "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: minute, requests_per_unit: 3 } }]")
	four := &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{keyed("k")}, HitsAddend: 4}
	if got := askAt(t, s, noon, four); !slices.Contains(got.headers, "x-should-retry: false") {
		t.Errorf("the headers %q make clients of OpenAI retry 4 hits on a limit of 3", got.headers)
	}
	for _, preset := range []string{"text", "problem", "openai", "anthropic"} {
		s := service(t, Settings{DeniedResponse: preset, GRPCDenials: true}, "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: minute, requests_per_unit: 3 } }]")
		got := askAt(t, s, noon, four)
		details := strings.Contains(strings.Join(got.headers, " "), "grpc-status-details-bin")
		if !strings.Contains(got.body, "more hits than it ever admits") || strings.Contains(got.body, "again") || details {
			t.Errorf("%s: the body %s and the headers %q make clients retry 4 hits on a limit of 3", preset, got.body, got.headers)
		}
	}
}

// TestHopelessChoice checks that a denial by limits none of which ever admits the hits has no time to wait.
func TestHopelessChoice(t *testing.T) {
	for _, quotas := range []bool{false, true} {
		s := service(t, Settings{DeniedResponse: "openai", RetryAfterHeader: true, QuotaMode: quotas}, `{domain: d, descriptors: [
			{key: k, charge: first_with_room, rate_limits: [{unit: minute, requests_per_unit: 3}, {unit: hour, requests_per_unit: 5, counter: pool}]}]}`)
		for _, hits := range []uint32{5, 4, 9} {
			got := askAt(t, s, noon, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{keyed("k")}, HitsAddend: hits})
			headers := strings.ToLower(strings.Join(got.headers, " "))
			if want := map[uint32]int{5: 0, 4: 2, 9: 0}[hits]; strings.Count(headers, "retry-after") != want {
				t.Errorf("quotas: %t, %d hits: headers %q, want %d with a time", quotas, hits, got.headers, want)
			}
		}
	}
}

// TestDeniedResponseOfFlag checks that --denied-response applies to rules and domains without one.
func TestDeniedResponseOfFlag(t *testing.T) {
	const plain = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: hour, requests_per_unit: 0 } }, { key: silent, denied_response: none, rate_limit: { unit: hour, requests_per_unit: 0 } }]"
	for _, preset := range []string{"", "none", "text"} {
		s := service(t, Settings{DeniedResponse: preset}, plain)
		if got := ask(t, s, "k"); (got.body != "") != (preset == "text") {
			t.Errorf("--denied-response=%s: body %q", preset, got.body)
		}
		if got := ask(t, s, "silent"); got.body != "" || got.headers != nil {
			t.Errorf("--denied-response=%s and none: %v", preset, got)
		}
	}
}

// TestGRPCDenials checks the headers of gRPC, of a map and of --grpc-denials. The status in
// grpc-status-details-bin has the code and the message of the reply.
func TestGRPCDenials(t *testing.T) {
	for _, tt := range []struct {
		keys     []string
		settings Settings
		wait     time.Duration
		body     string
		headers  []string
	}{
		{[]string{"own"}, Settings{}, 2 * time.Minute, `{"n":"mine","v":[0,120,120,120],"d":"d"}`, []string{
			"Retry-After: 120", "content-type: application/json", "x-plan: free", "x-again: 120 of mine",
			"grpc-status: 8", "grpc-retry-pushback-ms: -1",
		}},
		{[]string{"silent"}, Settings{GRPCDenials: true}, time.Hour, "", []string{"grpc-status: 8", "grpc-retry-pushback-ms: -1"}},
		{[]string{"own", "openai"}, Settings{GRPCDenials: true}, 2 * time.Minute, "", nil},
	} {
		got := ask(t, service(t, tt.settings, denialRules), tt.keys...)
		details := got.headers[len(got.headers)-1]
		if tt.headers != nil {
			if diff := cmp.Diff(tt.headers, got.headers[:len(got.headers)-1]); diff != "" || got.body != tt.body {
				t.Errorf("%v: body %s, headers (-want +got):\n%s", tt.keys, got.body, diff)
			}
		}
		encoded, _ := strings.CutPrefix(details, "grpc-status-details-bin: ")
		b, err := base64.RawStdEncoding.DecodeString(encoded)
		must.OK(t, err)
		var status rpcstatus.Status
		must.OK(t, proto.Unmarshal(b, &status))
		var info errdetails.RetryInfo
		must.OK(t, status.GetDetails()[0].UnmarshalTo(&info))
		if status.GetCode() != 8 || status.GetMessage() != got.body || info.GetRetryDelay().AsDuration() != tt.wait {
			t.Errorf("%v: the details are %v and %v, want the code 8, the body and %v", tt.keys, &status, &info, tt.wait)
		}
	}
}

// TestLongGRPCMessages checks that the details do not repeat a message that, encoded twice, would
// exceed the headers that clients of gRPC accept.
func TestLongGRPCMessages(t *testing.T) {
	for _, tt := range []struct {
		body     string
		detailed bool
	}{
		{strings.Repeat("a", maxDetailedMessage), true},
		{strings.Repeat("a", maxDetailedMessage+1), false},
		{strings.Repeat("é", maxDetailedMessage/6), true},
		{strings.Repeat("é", maxDetailedMessage/6+1), false},
	} {
		s := service(t, Settings{GRPCDenials: true}, fmt.Sprintf("domain: d\ndescriptors: [{ key: k, denied_response: { body: %q }, rate_limit: { unit: minute, requests_per_unit: 0 } }]", tt.body))
		got := ask(t, s, "k")
		if last := got.headers[len(got.headers)-1]; strings.HasPrefix(last, "grpc-status-details-bin") != tt.detailed || got.body != tt.body {
			t.Errorf("%d bytes: the last header is %.40s, want details %v", len(tt.body), last, tt.detailed)
		}
	}
}

// TestGRPCPushback checks that the pushback of a short wait is in milliseconds.
func TestGRPCPushback(t *testing.T) {
	s := service(t, Settings{GRPCDenials: true}, "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: minute, requests_per_unit: 0 } }]")
	if got := ask(t, s, "k"); !slices.Contains(got.headers, "grpc-retry-pushback-ms: 60000") {
		t.Errorf("headers %q, want a pushback of a minute", got.headers)
	}
}

// TestDeniedResponseAllocatesNothing checks the presets and a map with headers of gRPC.
func TestDeniedResponseAllocatesNothing(t *testing.T) {
	s := service(t, Settings{}, denialRules)
	for _, key := range []string{"inherits", "problem", "openai", "anthropic", "own"} {
		request := marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{keyed(key), keyed(key)}})
		var x Exchange
		answer := func() {
			_, _, err := s.Answer(noon, 0, &x, request)
			must.OK(t, err)
		}
		answer()
		if n := must.AllocsPerRun(100, answer); n != 0 {
			t.Errorf("%s: %v allocations, want 0", key, n)
		}
	}
}

// TestViolatedPoliciesAreBounded sends a request that a thousand limits deny. The body stays valid
// JSON within its bound.
func TestViolatedPoliciesAreBounded(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("domain: d\ndenied_response: problem\ndescriptors:\n")
	var keys []string
	for i := range 1000 {
		keys = append(keys, fmt.Sprint("k", i))
		fmt.Fprintf(&rules, "- { key: k%d, rate_limit: { unit: hour, requests_per_unit: 0, name: '%d%s' } }\n", i, i, strings.Repeat(`"`, 300))
	}
	got := ask(t, service(t, Settings{}, rules.String()), keys...)
	var problem struct {
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(got.body), &problem); err != nil || len(got.body) > 4096 || len(problem.Violated) != 3 {
		t.Errorf("%d violated policies in %d bytes: %v", len(problem.Violated), len(got.body), err)
	}
}

// TestEndCallsHaveNoDeniedResponse checks that the reply to a call that returns a lease has no body,
// even if another descriptor of the call is denied.
func TestEndCallsHaveNoDeniedResponse(t *testing.T) {
	s := service(t, Settings{}, denialRules+`
  - { key: streams, rate_limit: { unit: minute, requests_per_unit: 1, algorithm: concurrency, name: streams } }
`)
	d := keyed("streams")
	d.HitsAddend = wrapperspb.UInt64(limiter.FirstLease)
	var x Exchange
	b, _, err := s.Answer(noon, 0, &x, marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{keyed("inherits"), d}}))
	must.OK(t, err)
	var reply rls.RateLimitResponse
	must.OK(t, proto.Unmarshal(b, &reply))
	if !x.overLimit || reply.GetRawBody() != nil || reply.GetResponseHeadersToAdd() != nil {
		t.Errorf("over limit %v, reply %v; want a denial without body and headers", x.overLimit, &reply)
	}
}
