package admin_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/html"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const shownRules = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 2, name: yearly}}
  - {key: detail, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: shy, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: idle, rate_limit: {unit: year, requests_per_unit: 2}}
---
domain: other
`

// askHTTP sends a request to a debug listener and returns code, header and body.
func askHTTP(t *testing.T, method, target string, header ...string) (int, http.Header, string) {
	t.Helper()
	return servertest.Fetch(t, method, target, "", header...)
}

func askState(t *testing.T, addr, query string) *live.State {
	t.Helper()
	code, _, body := askHTTP(t, http.MethodGet, "http://"+addr+admin.StatePath+query)
	var state live.State
	if err := json.Unmarshal([]byte(body), &state); err != nil || code != 200 {
		t.Fatalf("%d, %v: %s", code, err, body)
	}
	return &state
}

// TestState checks the state after some requests.
func TestState(t *testing.T) {
	s := servertest.Service(t, answer.Settings{TopKeys: live.Clear}, shownRules)
	a := newAPI(t, s, zap.NewNop())
	addr := listen(t, a)
	a.Tick(time.Now())
	for key, n := range map[string]int{"user": 7, "detail": 5, "shy": 4, "usr": 3} {
		for range n {
			servertest.Hit(t, s, key, "al", 1, nil)
		}
	}
	state := askState(t, addr, "")
	if state.Version != 1 || state.Counters != "memory" || state.TopKeys != "clear" || state.Config.Hash != s.Rules().Hash || state.Config.Limits != 4 || state.Config.Domains != 2 || state.Config.Omitted != 0 {
		t.Errorf("the state begins with %+v %+v", state.Config, state)
	}
	d := state.Domains[0]
	if d.Domain != "d" || state.Domains[1].Domain != "other" || len(d.Rules) != 4 {
		t.Fatalf("domains are %+v, want d first", state.Domains)
	}
	var limits []string
	for _, r := range d.Rules {
		limits = append(limits, fmt.Sprint(r.Rule, " ", r.Limit, " ", r.TotalHits, " ", r.TotalDenied, " ", r.Shadow, " ", r.Hits > 0, r.Denied > 0, r.Rate.Shadow > 0))
	}
	want := "user 2/year 7 5 false true true false\ndetail 2/year 5 3 false true true false\nshy 2/year 4 0 true true false true\nidle 2/year 0 0 false false false false"
	if got := strings.Join(limits, "\n"); got != want {
		t.Errorf("limits are\n%s\nwant\n%s", got, want)
	}
	if k := d.DeniedKeys; len(k) != 2 || k[0].Descriptor != "user=al" || k[0].Denied != 5 || k[0].Name != "yearly" || k[1].Descriptor != "detail=al" || k[1].Denied != 3 {
		t.Errorf("denied keys are %+v, want user=al and detail=al", k)
	}
	if u := d.Unmatched; len(u) != 1 || u[0].Key != "usr" || u[0].Seen != 3 || u[0].Meant != "user" {
		t.Errorf("unmatched is %+v, want usr with user as its probable meaning", u)
	}
	report := askCounters(t, addr, client.CounterQuery{Descriptor: "user=al"})
	if got := report.Counters[0].Key; got != d.DeniedKeys[0].Hash {
		t.Errorf("the key of user=al is %s in the counters, but %s in the state", got, d.DeniedKeys[0].Hash)
	}
	if got := askState(t, addr, "?rules=active&max=2"); len(got.Domains[0].Rules) != 2 || got.Config.Omitted != 2 {
		t.Errorf("?rules=active&max=2 has %+v, omitted %d", got.Domains[0].Rules, got.Config.Omitted)
	}
	if got := askState(t, addr, "?keys=1").Domains[0]; len(got.DeniedKeys) != 1 || got.DeniedKeys[0].Descriptor != "user=al" || got.OmittedKeys != 1 || got.DeniedRequests < 7 {
		t.Errorf("?keys=1 has %+v, want user=al alone", got)
	}
	if got := askState(t, addr, "?rules=active"); len(got.Domains[0].Rules) != 3 {
		t.Errorf("?rules=active has %+v, want three", got.Domains[0].Rules)
	}
}

// TestStateHasNoValues checks that the modes hashed, the default, and off store no values of
// clients.
func TestStateHasNoValues(t *testing.T) {
	for _, mode := range []string{"", live.Hashed, live.Off} {
		s := servertest.Service(t, answer.Settings{TopKeys: mode}, shownRules)
		addr, logs := debugServer(t, s)
		for range 5 {
			servertest.Hit(t, s, "user", "s3cret", 1, nil)
			servertest.Hit(t, s, "usr", "s3cret", 1, nil)
		}
		_, _, body := askHTTP(t, http.MethodGet, "http://"+addr+admin.StatePath)
		for _, text := range []string{body, fmt.Sprint(logs.All())} {
			if strings.Contains(text, "s3cret") {
				t.Errorf("--top-keys=%s: the state or the log contains a value: %s", mode, text)
			}
		}
		if got := strings.Contains(body, `"share"`); got != (mode != live.Off) {
			t.Errorf("--top-keys=%s: the state contains keys: %t", mode, got)
		}
	}
}

// TestStateIsIndented checks that only programs that ask for JSON get it without indentation.
func TestStateIsIndented(t *testing.T) {
	addr, _ := debugServer(t, servertest.Service(t, answer.Settings{}, shownRules))
	for accept, want := range map[string]bool{"*/*": true, "text/html,*/*": true, "application/json": false} {
		_, _, body := askHTTP(t, http.MethodGet, "http://"+addr+admin.StatePath, "Accept", accept)
		if got := strings.HasPrefix(body, "{\n  \"version\": 1,\n"); got != want || !strings.HasPrefix(strings.TrimSpace(body[1:]), `"version":`) {
			t.Errorf("Accept: %s: the state is indented: %t, want %t: %.100s", accept, got, want, body)
		}
	}
}

func TestStateRejectsBadQueries(t *testing.T) {
	addr, _ := debugServer(t, servertest.Service(t, answer.Settings{}, shownRules))
	for query, want := range map[string]string{
		"?rule=all":     `unknown parameter \"rule\" (allowed: rules, max, keys)`,
		"?rules=some":   `parameter rules is \"some\": must be all or active`,
		"?max=10001":    `parameter max is \"10001\": must be 0 to 10000`,
		"?max=-1":       "must be 0 to 10000",
		"?keys=all":     `parameter keys is \"all\": must be 0 to 10000`,
		"?%zz":          "failed to parse the query",
		"?max=5&max=no": `parameter \"max\" is given 2 times: only one max is allowed`,
	} {
		code, _, body := askHTTP(t, http.MethodGet, "http://"+addr+admin.StatePath+query)
		if (code == 200) != (want == "") || !strings.Contains(body, want) {
			t.Errorf("%s = %d %s, want %s", query, code, body, want)
		}
	}
	if code, _, body := askHTTP(t, http.MethodPost, "http://"+addr+admin.StatePath); code != http.StatusMethodNotAllowed {
		t.Errorf("POST = %d %s, want 405", code, body)
	}
}

// TestMemoryFullCondition evicts counters.
func TestMemoryFullCondition(t *testing.T) {
	table, err := limiter.New(limiter.Options{Bytes: limiter.MinBytes})
	if err != nil {
		t.Fatal(err)
	}
	s := servertest.ServiceOn(t, table, answer.Settings{}, shownRules)
	a := newAPI(t, s, zap.NewNop())
	now := time.Now()
	a.Tick(now)
	if active := a.State(now, admin.AllRules).Conditions; len(active) > 0 {
		t.Errorf("initially the conditions are %+v, want none", active)
	}
	for i := range 5000 {
		servertest.Hit(t, s, "user", strconv.Itoa(i), 1, nil)
	}
	active := a.State(now.Add(time.Second), admin.AllRules).Conditions
	if len(active) != 1 || active[0].Code != telemetry.MemoryFull || !strings.Contains(active[0].Remedy, "--counter-memory") {
		t.Errorf("the conditions are %+v, want memory_full", active)
	}
	if active := a.State(now.Add(2*time.Minute), admin.AllRules).Conditions; len(active) > 0 {
		t.Errorf("two minutes later the conditions are %+v, want none", active)
	}
}

// TestResetHasPreview checks the preview and the reset.
func TestResetHasPreview(t *testing.T) {
	s := servertest.Service(t, answer.Settings{}, shownRules)
	addr, logs := debugServer(t, s)
	for range 5 {
		servertest.Hit(t, s, "user", "al", 1, nil)
		servertest.Hit(t, s, "user", "bo", 1, nil)
		servertest.Hit(t, s, "detail", "al", 1, nil)
	}
	used := func(descriptor string) uint64 {
		return askCounters(t, addr, client.CounterQuery{Descriptor: descriptor}).Counters[0].Used
	}
	before := used("user=al")
	key := askCounters(t, addr, client.CounterQuery{Descriptor: "user=al"}).Counters[0].Key
	which := live.Selection{Domain: "d", Key: key}
	preview, err := (&client.Debug{Addr: addr}).ResetCounters(t.Context(), which, false)
	if err != nil || preview.Done || preview.Counters != 1 || preview.Used != before || used("user=al") != before {
		t.Fatalf("the preview is %+v, %v, and %d are used", preview, err, used("user=al"))
	}
	shown := live.Selection{Domain: "d", Key: "#" + key} // as top and the page display it
	report, err := (&client.Debug{Addr: addr}).ResetCounters(t.Context(), shown, true)
	if err != nil || !report.Done || report.Counters != 1 || report.Used != before {
		t.Fatalf("the reset is %+v, %v", report, err)
	}
	if used("user=al") != 0 || used("user=bo") == 0 || used("detail=al") == 0 {
		t.Errorf("used are %d, %d and %d, want only the first to be reset", used("user=al"), used("user=bo"), used("detail=al"))
	}
	lines := logs.FilterMessage("counters reset").All()
	if len(lines) != 1 || lines[0].ContextMap()["selection"] != "the key #"+key+" in the domain d" || lines[0].ContextMap()["counters"] != int64(1) || lines[0].ContextMap()["by"] == "" {
		t.Errorf("the log lines are %+v", lines)
	}
	if _, err := (&client.Debug{Addr: addr}).ResetCounters(t.Context(), which, false); err == nil || !strings.Contains(err.Error(), "nothing to reset") {
		t.Errorf("a second preview: %v, want an error that there is nothing to reset", err)
	}
	preview, err = (&client.Debug{Addr: addr}).ResetCounters(t.Context(), live.Selection{Domain: "d", Rule: "user"}, false)
	if err != nil || preview.Counters != 1 {
		t.Errorf("by the rule: %+v, %v, want one counter", preview, err)
	}
}

func TestResetRejectsBadQueries(t *testing.T) {
	addr, _ := debugServer(t, servertest.Service(t, answer.Settings{}, shownRules))
	for query, want := range map[string]string{
		"":                   "parameter domain is missing",
		"?domain=d&user=al":  `unknown parameter \"user\"`,
		"?domain=d&domain=e": `parameter \"domain\" is given 2 times`,
		"?domain=d":          "nothing to reset",
		"?domain=d&key=":     "parameter key is empty: omit it to reset all",
		"?domain=d&key=%23":  "parameter key is empty",
		"?domain=d&rule=":    "parameter rule is empty",
	} {
		if code, _, body := askHTTP(t, http.MethodPost, "http://"+addr+admin.ResetPath+query); code < 400 || !strings.Contains(body, want) {
			t.Errorf("%s = %d %s, want %s", query, code, body, want)
		}
	}
}

// TestPage checks the page's Content-Security-Policy and size, and that the page needs nothing else.
func TestPage(t *testing.T) {
	addr, _ := debugServer(t, servertest.Service(t, answer.Settings{}, shownRules))
	code, header, body := askHTTP(t, http.MethodGet, "http://"+addr+"/", "Accept", "text/html,*/*")
	if code != 200 || header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %v", code, header)
	}
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	policy := header.Get("Content-Security-Policy")
	for n := range root.Descendants() {
		if n.Data == "script" || n.Data == "style" {
			sum := sha256.Sum256([]byte(n.FirstChild.Data))
			if want := n.Data + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"; !strings.Contains(policy, want) {
				t.Errorf("the policy is %q, want %s", policy, want)
			}
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" || a.Key == "href" && a.Val != "data:," {
				t.Errorf("<%s> has the attribute %s=%q, which the policy forbids", n.Data, a.Key, a.Val)
			}
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'; script-src 'sha256-") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
		t.Errorf("the policy is %q", policy)
	}
	if len(body) > 60<<10 {
		t.Errorf("the page has %d bytes, want at most 60 KiB", len(body))
	}
	_, header, body = askHTTP(t, http.MethodGet, "http://"+addr+"/")
	if body != admin.DebugIndex || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
		t.Errorf("without Accept: text/html the answer is %v:\n%s", header, body)
	}
	if code, _, _ := askHTTP(t, http.MethodGet, "http://"+addr+"/"+url.PathEscape("nothing"), "Accept", "text/html"); code != http.StatusNotFound {
		t.Errorf("an unknown page = %d, want 404", code)
	}
}
