package simulate

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	quota "github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/rlqs/filter"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// dividedRules divide a limit per user, and have another limit that is not divided.
const dividedRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: second, requests_per_unit: 20, algorithm: token_bucket, quota: {} }
  - key: name
    rate_limit: { unit: minute, requests_per_unit: 300 }
  - key: free
    rate_limit: { unlimited: true, quota: {} }
  - key: none
    rate_limit: { unit: second, requests_per_unit: 0, algorithm: token_bucket, quota: {} }
`

// TestDivided compares the result with Envoys that receive the same requests one by one.
func TestDivided(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var log strings.Builder
	var at []time.Duration
	var who []string
	for now := time.Duration(0); now < 40*time.Second; now += time.Duration(r.IntN(30)) * time.Millisecond {
		at, who = append(at, now), append(who, fmt.Sprint("u", r.IntN(2)))
		log.WriteString(usersLine(noon.Add(now), 200, who[len(who)-1]))
	}
	limit := &quota.Limit{Hits: 20, Window: time.Second, Burst: 100 * time.Millisecond}
	shard, err := accesslog.ParseExpression("{x-user}")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		shard *accesslog.Expression
		to    func(i int) int
	}{
		"in turns": {nil, func(i int) int { return (i + 1) % 3 }},
		"by user": {shard, func(i int) int {
			h := fnv.New32a()
			h.Write([]byte(who[i]))
			return int(h.Sum32() % 3)
		}},
	} {
		fleet, want := filter.NewFleet(3, true), uint64(0)
		for i := range at {
			if fleet.Request(at[i], tt.to(i), quota.Bucket{uint64(who[i][1])}, limit) {
				want++
			}
		}
		found := simulateUsers(t, func(o *Options) {
			o.Rules, o.Envoys, o.Shard = compile(t, dividedRules), 3, tt.shard
		}, logOf("log", log.String()))
		d := found.Divided
		if d == nil || len(d.Divided) != 1 || len(d.Limits) != 1 {
			t.Fatalf("%s: the report has %+v", name, d)
		}
		l, main := d.Divided[0], found.Rules.Limits[0]
		if l.Requests != uint64(len(at)) || l.Envoys != want || l.Counter != main.Hits-main.Over || d.WithoutShare != fleet.UnassignedAllowed() || d.Envoys != 3 {
			t.Errorf("%s: %+v, %d admitted without a share; want %d of %d admitted, %d of them without a share", name, l, d.WithoutShare, want, len(at), fleet.UnassignedAllowed())
		}
		if d.Denied != l.Requests-l.Envoys || d.Denied != found.Rules.Denied+d.More-d.Fewer || d.Keys != 2 {
			t.Errorf("%s: %d hits of %d keys are denied, %d more and %d fewer than the %d of one counter", name, d.Denied, d.Keys, d.More, d.Fewer, found.Rules.Denied)
		}
	}
}

// TestDividedWithOtherLimits checks that rules without quota are decided as before, after the
// Envoys' decision.
func TestDividedWithOtherLimits(t *testing.T) {
	var log strings.Builder
	for i := range 1000 {
		log.WriteString(usersLine(noon.Add(time.Duration(i)*10*time.Millisecond), 200, "al"))
	}
	run := func(templates ...string) (denied uint64, l map[string]uint64) {
		var all []*Template
		for _, text := range templates {
			all = append(all, newTemplate(t, text))
		}
		found := simulateUsers(t, func(o *Options) { o.Rules, o.Envoys, o.Templates = compile(t, dividedRules), 2, all }, logOf("log", log.String()))
		l = map[string]uint64{}
		for _, limit := range found.Divided.Limits {
			l[limit.Rule] = limit.Hits
		}
		return found.Divided.Denied, l
	}
	if denied, l := run("name={x-user}"); denied != 700 || l["name"] != 1000 {
		t.Errorf("without a divided limit: %d denied, hits %v", denied, l)
	}
	if denied, l := run("name={x-user}", "free={x-user}"); denied != 700 || l["name"] != 1000 || len(l) != 1 {
		t.Errorf("with an unlimited descriptor: %d denied, hits %v", denied, l)
	}
	// Each Envoy admits the first request, before it receives the limit of 0. Requests that it
	// denies do not reach the service.
	if denied, l := run("name={x-user}", "none={x-user}"); denied != 998 || l["name"] != 2 || l["none"] != 1000 {
		t.Errorf("with a limit of 0: %d denied, hits %v", denied, l)
	}
}

// TestDividedCountsRequests has a request with five hits and a refund. Envoys support neither.
func TestDividedCountsRequests(t *testing.T) {
	log := `{"time": "2026-11-21T12:00:00Z", "domain": "shop", "descriptors": [{"entries": [["user", "al"]], "hits": 5}, {"entries": [["user", "bo"]]}]}
{"time": "2026-11-21T12:00:01Z", "domain": "shop", "descriptors": [{"entries": [["user", "al"]], "refund": true, "hits": 2}]}
{"time": "2026-11-21T12:00:02Z", "domain": "shop", "hits": 7, "descriptors": [{"entries": [["user", "al"]]}]}
`
	found := simulateUsers(t, func(o *Options) {
		o.Rules, o.Envoys, o.Format, o.Templates = compile(t, dividedRules), 1, "requests", nil
	}, logOf("log", log))
	if l := found.Divided.Divided[0]; l.Requests != 3 || l.Envoys != 3 || l.Counter != 13 {
		t.Errorf("the limit has %+v", l)
	}
}

// TestDividedErrors has options that exclude each other.
func TestDividedErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"no quota":  {func(o *Options) { o.Rules = compile(t, perUser) }, `no rule has "quota"`},
		"against":   {func(o *Options) { o.Against = []Alternative{{"x", o.Rules}} }, "--against exclude each other"},
		"replicas":  {func(o *Options) { o.Replicas = 2 }, "--replicas exclude each other"},
		"recommend": {func(o *Options) { o.Recommend = 50 }, "--recommend exclude each other"},
	} {
		o := Options{
			Logs: []accesslog.Log{logOf("log", usersLine(noon, 200, "al"))}, Rules: compile(t, dividedRules), Envoys: 2,
			Format: users, Templates: []*Template{newTemplate(t, "user={x-user}")}, Now: now,
		}
		tt.change(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestDividedText checks the comparison with one counter in the text and the page.
func TestDividedText(t *testing.T) {
	var log strings.Builder
	for i := range 2000 {
		log.WriteString(usersLine(noon.Add(time.Duration(i)*10*time.Millisecond), 200, "al"))
	}
	denials := uint64(0)
	found := simulateUsers(t, func(o *Options) {
		o.Rules, o.Envoys = compile(t, dividedRules), 2
		o.OnDecision = func(_ limiter.Time, _, denied bool) {
			if denied {
				denials++
			}
		}
	}, logOf("log", log.String()))
	if denials != found.Rules.Denied {
		t.Errorf("OnDecision reported %d denials, want %d", denials, found.Rules.Denied)
	}
	var text, page strings.Builder
	if err := found.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := found.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"divided among 2 Envoys: ", " more denied than by one counter, ", " admitted before a share was assigned", "one counter admits", "2 Envoys admit"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text does not contain %q:\n%s", want, &text)
		}
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if !strings.Contains(page.String(), "<h2>Divided among 2 Envoys</h2>") {
		t.Error("the page has no section of the Envoys")
	}
}
