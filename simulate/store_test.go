package simulate

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

const storeRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: second, requests_per_unit: 100 }
  - key: free
    rate_limit: { unit: hour, requests_per_unit: 10, count_refused: false }
  - key: bucket
    rate_limit: { unit: hour, requests_per_unit: 10, algorithm: token_bucket }
  - key: several
    rate_limits: [{ unit: second, requests_per_unit: 5, count_refused: true }, { unit: minute, requests_per_unit: 7, count_refused: true }]
  - key: mixed
    rate_limits: [{ unit: second, requests_per_unit: 5, count_refused: true }, { unit: minute, requests_per_unit: 7 }]
`

// simulateStore simulates replicas with a store.
func simulateStore(t *testing.T, replicas int, log, template string, change func(*Options)) *report.Report {
	t.Helper()
	return simulateUsers(t, func(o *Options) {
		o.Rules, o.StoreBlocks, o.RoundTrip, o.Replicas = compile(t, storeRules), true, time.Millisecond, replicas
		if o.Templates = []*Template{newTemplate(t, template)}; change != nil {
			change(o)
		}
	}, logOf("log", log))
}

// TestStoreUse checks the use of the store by requests that have no blocks.
func TestStoreUse(t *testing.T) {
	log := func(n int, every time.Duration) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(usersLine(noon.Add(time.Duration(i)*every), 200, "al"))
		}
		return b.String()
	}
	for name, tt := range map[string]struct {
		log, template string
		want          report.StoreUse
	}{
		"denied hits count": {log(300, 200*time.Millisecond), "user={x-user}", report.StoreUse{Requests: 300, Commands: 600, Waiting: 300}},
		// Ten requests use up the limit. Then each of two replicas repeats a denial for a second.
		"script":       {log(70, 100*time.Millisecond), "bucket={x-user}", report.StoreUse{Requests: 70, Commands: 22, Waiting: 22, Denied: 60}},
		"two commands": {log(20, 200*time.Millisecond), "several={x-user}", report.StoreUse{Requests: 20, Commands: 80, Waiting: 20, Denied: 13}},
		"mixed":        {log(20, 200*time.Millisecond), "mixed={x-user}", report.StoreUse{Requests: 20, Commands: 20, Waiting: 20, Denied: 13}},
		// Two messages are in flight; the other requests of the same time share the next one.
		"concurrent": {log(50, 0), "free={x-user}", report.StoreUse{Requests: 50, Commands: 6, Waiting: 50, Denied: 40}},
		"no limit":   {log(5, time.Second), "other={x-user}", report.StoreUse{}},
	} {
		s := simulateStore(t, 2, tt.log, tt.template, nil).Store
		if s.Total.Off != tt.want {
			t.Errorf("%s: %+v, want %+v", name, s.Total.Off, tt.want)
		}
		if name != "concurrent" && s.Total.Auto != tt.want {
			t.Errorf("%s, with blocks: %+v, want %+v", name, s.Total.Auto, tt.want)
		}
		for _, l := range s.Limits {
			if l.Auto.Requests != tt.want.Requests || l.Off.Waiting != tt.want.Waiting || l.Off.Commands*float64(len(s.Limits)) != tt.want.Commands {
				t.Errorf("%s: %s has %+v", name, l.Limit, l.StoreUses)
			}
		}
	}
}

// TestUnusedHits moves the demand from one replica to another while the first one has unused hits,
// which it returns after 200 ms.
func TestUnusedHits(t *testing.T) {
	var log strings.Builder
	at := noon
	for range 260 { // 250 in one window and ten in the next
		log.WriteString(usersLine(at, 200, "al"))
		at = at.Add(4 * time.Millisecond)
	}
	for range 900 { // ten times the limit
		log.WriteString(usersLine(at, 200, "cy"))
		at = at.Add(time.Millisecond)
	}
	shard, err := accesslog.ParseExpression("{x-user}")
	if err != nil {
		t.Fatal(err)
	}
	const share = 100 / (3 * 2) // the largest block
	s := simulateStore(t, 2, log.String(), "user=all", func(o *Options) { o.Shard = shard }).Store
	off, auto := s.Total.Off, s.Total.Auto
	// A repeated request for a denied hit counts, and the store is asked every 50 ms.
	if s.Fewer == 0 || s.Fewer > share || auto.More <= s.Fewer || auto.More > share+200/50 || off.Denied != 960 || auto.Denied != off.Denied+auto.More-s.Fewer {
		t.Errorf("%+v without blocks, %+v with blocks, %d fewer denied; want at most %d fewer", off, auto, s.Fewer, share)
	}
	if auto.Waiting*10 > off.Waiting || auto.Commands*10 > off.Commands || s.Limits[0].Auto != auto {
		t.Errorf("%+v with blocks, the limit has %+v; want a tenth of %+v", auto, s.Limits[0].Auto, off)
	}
}

// TestStoreErrors has options that exclude each other.
func TestStoreErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"no blocks": {func(o *Options) { o.Rules = compile(t, withoutBlocks) }, "no limit of these rules can have blocks"},
		"a log":     {func(o *Options) { o.Rules = compile(t, onlyLog) }, "no limit of these rules can have blocks"},
		"recommend": {func(o *Options) { o.Recommend = 50 }, "--recommend exclude each other"},
	} {
		o := Options{
			Logs: []accesslog.Log{logOf("log", usersLine(noon, 200, "al"))}, Rules: compile(t, perUser), StoreBlocks: true, RoundTrip: time.Millisecond,
			Format: users, Templates: []*Template{newTemplate(t, "user={x-user}")}, Now: now,
		}
		tt.change(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

const withoutBlocks = `
domain: shop
descriptors: [{ key: user, rate_limit: { unit: second, requests_per_unit: 20, blocks: off } }]
`

const onlyLog = `
domain: shop
descriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 20, algorithm: sliding_log } }]
`

// TestStoreReport checks the use of the store in the text and the page.
func TestStoreReport(t *testing.T) {
	found := simulateStore(t, 3, usersLine(noon, 200, "al")+usersLine(noon.Add(time.Second), 200, "al"), "user={x-user}", nil)
	var text, page strings.Builder
	must.OK(t, found.WriteText(&text))
	must.OK(t, found.WriteHTML(&page))
	for _, want := range []string{"3 replicas with the counters of a store", "a shared store, round trip 1ms: with blocks 0 more denied, 0 fewer", "commands each: off"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text does not contain %q:\n%s", want, &text)
		}
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if want := "user 100/second  2         2                   2     100 %      100 %  0            0     0\n"; !strings.Contains(text.String(), want) {
		t.Errorf("the text does not contain %q:\n%s", want, &text)
	}
	if want := "<td>user 100/second</td><td>2</td><td>2</td><td>2</td><td>100 %</td>"; !strings.Contains(page.String(), want) {
		t.Errorf("the page does not contain %q", want)
	}
}

// TestStoreSharesCounters checks that replicas with a store deny as a single one does, also with
// alternative rules.
func TestStoreSharesCounters(t *testing.T) {
	var log strings.Builder
	for i := range 60 {
		log.WriteString(usersLine(noon.Add(time.Duration(i)*100*time.Millisecond), 200, "al"))
	}
	other := func(o *Options) { o.Against = []Alternative{{"other", o.Rules}} }
	found := simulateStore(t, 3, log.String(), "bucket={x-user}", other)
	if c := found.Against[0]; found.Rules.Denied != 50 || c.Denied != 50 || c.More+c.Fewer > 0 || found.Rules.Keys != 1 {
		t.Errorf("%d denied by the rules, %+v by others; want 50 each", found.Rules.Denied, c)
	}
}
