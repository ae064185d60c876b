package rlqs_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/rlqs"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// A shelf has roles, by the time of a test. store.TestRoles holds that the store has them so.
type shelf struct {
	mu     sync.Mutex
	held   map[string]string
	until  map[string]time.Time
	before func() (lost bool) // is called before an answer; nil for never
	after  func() (lost bool) // is called when it is on its way
}

func newShelf() *shelf { return &shelf{held: map[string]string{}, until: map[string]time.Time{}} }

// AcquireLeadership implements [rlqs.Elector].
func (s *shelf) AcquireLeadership(holder string, length time.Duration, domains []string, answer func(i int, before string)) {
	if s.before != nil && s.before() {
		return
	}
	had := make([]string, len(domains))
	s.mu.Lock()
	for i, domain := range domains {
		if !time.Now().Before(s.until[domain]) {
			delete(s.held, domain)
		}
		if had[i] = s.held[domain]; had[i] == "" || had[i] == holder {
			s.held[domain], s.until[domain] = holder, time.Now().Add(length)
		}
	}
	s.mu.Unlock()
	if s.after != nil && s.after() {
		return
	}
	for i := range domains {
		answer(i, had[i])
	}
}

// forget has the shelf lose all roles.
func (s *shelf) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.held)
}

// roles implements [rlqs.Elector].
type roles func(holder string, length time.Duration, domains []string, answer func(i int, before string))

// AcquireLeadership implements [rlqs.Elector].
func (r roles) AcquireLeadership(holder string, length time.Duration, domains []string, answer func(i int, before string)) {
	r(holder, length, domains, answer)
}

// playRoles runs a test with so many services that share roles.
func playRoles(t *testing.T, shared []rlqs.Elector, test func(all []*stage)) {
	t.Helper()
	set, metrics := servertest.Compile(t, divided), servertest.Metrics(t)
	synctest.Test(t, func(t *testing.T) {
		var all []*stage
		for i, r := range shared {
			s := &stage{t: t, metrics: metrics}
			s.set.Store(set)
			begun := time.Now()
			s.Service = rlqs.New(rlqs.Options{
				Elapsed: func() time.Duration { return time.Since(begun) + time.Hour + time.Duration(s.paused.Load()) }, Rules: func() *descriptors.Set { return s.set.Load() }, Metrics: metrics,
				Count:  func(*descriptors.Set, *descriptors.Rule, []descriptors.Entry, uint64, uint64, uint64) {},
				Panics: telemetry.NewPanics(metrics.Panics, zap.NewNop()), Elector: r, Name: fmt.Sprintf("host-%d", i),
			})
			all = append(all, s)
			synctest.Wait() // so that the first is the first to ask
		}
		defer func() {
			for _, s := range all {
				s.Close()
			}
			time.Sleep(time.Minute) // what was asked is answered
		}()
		test(all)
	})
}

// refusal opens a stream, and returns the answer to its first report.
func (s *stage) refusal() error {
	e := s.envoy()
	defer e.Close()
	return e.Feed(servertest.Marshal(s.t, &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, "al")}}), true)
}

// rate is what an Envoy was told last of al.
func (e *envoy) rate() (perHour int) {
	_, _ = fmt.Sscanf(e.told["map[sluice:user user:al]"], "%d tokens, %d in", new(int), &perHour)
	return perHour
}

// TestOneOfSeveralDivides has two services share roles: one divides, and gives that back in the end.
func TestOneOfSeveralDivides(t *testing.T) {
	r := newShelf()
	playRoles(t, []rlqs.Elector{r, r}, func(all []*stage) {
		a, b := all[0], all[1]
		if !a.DividedDomains()["d"] || b.DividedDomains()["d"] || len(b.DividedDomains()) != 1 {
			t.Fatalf("they serve %v and %v", a.DividedDomains(), b.DividedDomains())
		}
		if err := b.refusal(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "host-0") {
			t.Errorf("who does not divide answers %v", err)
		}
		time.Sleep(time.Minute)
		e := a.envoy()
		e.reports(user(1, 0, "al"))
		if e.rate() != 360_000 {
			t.Errorf("Envoy is told %q", e.told)
		}
		woken := e.wakes.Load()
		a.Resign()
		a.Resign()
		if err := e.Err(); status.Code(err) != codes.Unavailable || e.wakes.Load() == woken {
			t.Errorf("the stream of who resigned ends with %v, woken: %v", err, e.wakes.Load() > woken)
		}
		if err := e.Feed(nil, true); status.Code(err) != codes.Unavailable {
			t.Errorf("its next report is answered by %v", err)
		}
		e.Close()
		if err := a.refusal(); status.Code(err) != codes.Unavailable {
			t.Errorf("who resigned answers %v", err)
		}
		if time.Sleep(time.Second); !b.DividedDomains()["d"] || a.DividedDomains()["d"] {
			t.Error("the other does not divide a second later")
		}
	})
}

// TestResignsWhileItAsks has the question of a service that resigns come to the store late: it does not take the role again.
func TestResignsWhileItAsks(t *testing.T) {
	r := newShelf()
	var late, asked atomic.Bool
	slow := roles(func(holder string, length time.Duration, domains []string, answer func(i int, before string)) {
		if length > 0 && late.Load() {
			asked.Store(true)
			time.Sleep(100 * time.Millisecond)
		}
		r.AcquireLeadership(holder, length, domains, answer)
	})
	playRoles(t, []rlqs.Elector{slow, r}, func(all []*stage) {
		a, b := all[0], all[1]
		time.Sleep(time.Minute)
		for late.Store(true); !asked.Load(); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // when the other does not ask
		a.Resign()
		if time.Sleep(time.Second); !b.DividedDomains()["d"] || a.DividedDomains()["d"] {
			t.Errorf("a second after the first resigned they serve %v and %v", a.DividedDomains(), b.DividedDomains())
		}
	})
}

// TestTakesOver has a service die. The other knows nothing of shares: who admitted something goes on with that, and no more
// is given to anybody until all that the first told has ended.
func TestTakesOver(t *testing.T) {
	r := newShelf()
	playRoles(t, []rlqs.Elector{r, r}, func(all []*stage) {
		a, b := all[0], all[1]
		time.Sleep(time.Minute)
		e := a.envoy()
		e.reports(user(1, 0, "al"))
		a.Close() // it is gone, and says nothing
		died := time.Now()
		for !b.DividedDomains()["d"] {
			time.Sleep(time.Millisecond)
		}
		took := time.Since(died)
		if took < 3*time.Second || took > 5*time.Second {
			t.Errorf("another divides after %v, want 3 to 5 s", took)
		}
		e, f := b.envoy(), b.envoy()
		e.reports(user(300, 0, "al"))
		first := user(1, 0, "al")
		first.TimeElapsed = nil
		f.reports(first)
		if e.rate() != 60*3600 {
			t.Errorf("who admitted 60 a second is told %q", e.told)
		}
		whole := time.Duration(0)
		for begun := time.Now(); whole == 0 && time.Since(begun) < time.Minute; time.Sleep(100 * time.Millisecond) {
			e.take()
			f.take()
			switch sum := e.rate() + f.rate(); {
			case sum > 360_000:
				t.Fatalf("told are %d", sum)
			case sum > 60*3600:
				whole = time.Since(begun)
			}
			if since := time.Since(begun); since%(5*time.Second) == 0 {
				e.reports(user(300, 0, "al"))
				f.reports(user(300, 0, "al"))
			}
		}
		// Three seconds in which the one before might still have told something, and 12.5 for which that acts.
		if whole < 15*time.Second || whole > 21*time.Second {
			t.Errorf("what nobody is known to have is divided after %v, want 15.5 s, or at the next report", whole)
		}
	})
}

// TestRoleEndsByItself has the store say nothing any more, for ever: what is queued is not sent once the role may be
// another's, and streams end. Nothing waits for the store.
func TestRoleEndsByItself(t *testing.T) {
	var silent atomic.Bool
	r := newShelf()
	r.before = func() bool {
		if silent.Load() {
			time.Sleep(30 * time.Second) // far longer than this test
		}
		return false
	}
	playRoles(t, []rlqs.Elector{r}, func(all []*stage) {
		time.Sleep(time.Minute)
		e, f := all[0].envoy(), all[0].envoy()
		e.reports(user(1, 0, "al"))
		silent.Store(true)
		time.Sleep(2400 * time.Millisecond) // it was kept half a second before, at most
		e.reports(user(1, 0, "bo"))
		if len(e.told) != 2 {
			t.Errorf("in time Envoy is told %q", e.told)
		}
		f.reports(user(1, 0, "cy"))
		if err := e.Feed(servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, "di")}}), true); err != nil {
			t.Error(err)
		}
		time.Sleep(601 * time.Millisecond)
		if b, seq, _ := e.AppendMessage(nil); len(b) > 0 || seq > 0 {
			t.Errorf("%d bytes are sent when the role is over", len(b))
		}
		time.Sleep(time.Second)
		for _, stream := range []*envoy{e, f} {
			if status.Code(stream.Err()) != codes.Unavailable {
				t.Errorf("a stream has ended: %v", stream.Err())
			}
			stream.Close()
		}
		if all[0].DividedDomains()["d"] {
			t.Error("it serves without the role")
		}
		go all[0].Resign() // which may wait for the store
	})
}

// TestPausedProcess has a process pause, as when its machine stops: its clock goes on, its timers do not. What was queued
// before is not sent after.
func TestPausedProcess(t *testing.T) {
	playRoles(t, []rlqs.Elector{newShelf()}, func(all []*stage) {
		time.Sleep(time.Minute)
		e := all[0].envoy()
		e.reports(user(1, 0, "al"))
		report := servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, "bo")}})
		must.OK(t, e.Feed(report, true))
		all[0].paused.Store(int64(3 * time.Second))
		if b, seq, _ := e.AppendMessage(nil); len(b) > 0 || seq > 0 {
			t.Errorf("%d bytes are sent when another may have the role", len(b))
		}
		if err := e.Feed(report, true); err != nil && status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		if b, seq, _ := e.AppendMessage(nil); len(b) > 0 || seq > 0 {
			t.Errorf("%d bytes are sent when another may have the role", len(b))
		}
		if time.Sleep(time.Second); status.Code(e.Err()) != codes.Unavailable {
			t.Errorf("the stream has ended: %v", e.Err())
		}
		e.Close()
		if !all[0].DividedDomains()["d"] {
			t.Error("it does not take the role that nobody has")
		}
	})
}

// TestRoleIsTakenAnew has the store lose the role of the only one: others might have had it since, so streams end, and
// Envoys go on at what they say that they admitted. What they were told under the old role does not count twice.
func TestRoleIsTakenAnew(t *testing.T) {
	r := newShelf()
	playRoles(t, []rlqs.Elector{r}, func(all []*stage) {
		time.Sleep(time.Minute)
		e := all[0].envoy()
		e.reports(user(300, 0, "al"))
		r.forget()
		if time.Sleep(time.Second); status.Code(e.Err()) != codes.Unavailable {
			t.Errorf("the stream has ended: %v", e.Err())
		}
		e.Close()
		e = all[0].envoy()
		if e.reports(user(300, 0, "al")); e.rate() != 60*3600 {
			t.Errorf("who admitted 60 a second is told %q", e.told)
		}
	})
}

// TestForgetfulStore has the store lose roles: whoever has one there divides, and waits for what the other may have told
// until it knew.
func TestForgetfulStore(t *testing.T) {
	r := newShelf()
	var silent atomic.Bool
	cut := roles(func(holder string, length time.Duration, domains []string, answer func(i int, before string)) { // the first's way to it
		if !silent.Load() {
			r.AcquireLeadership(holder, length, domains, answer)
		}
	})
	playRoles(t, []rlqs.Elector{cut, r}, func(all []*stage) {
		a, b := all[0], all[1]
		time.Sleep(time.Minute)
		e := a.envoy()
		e.reports(user(1, 0, "al"))
		silent.Store(true)
		r.forget()
		lost := time.Now()
		for !b.DividedDomains()["d"] {
			time.Sleep(time.Millisecond)
		}
		if !a.DividedDomains()["d"] {
			t.Fatal("the first knows that the store has lost its role; then this says nothing")
		}
		last := time.Time{} // when the first can last have told something
		f := b.envoy()
		first := user(1, 0, "al")
		first.TimeElapsed = nil
		f.reports(first)
		for begun := time.Now(); len(f.told) == 0 && time.Since(begun) < time.Minute; time.Sleep(50 * time.Millisecond) {
			if a.DividedDomains()["d"] {
				last = time.Now()
			}
			if f.take(); time.Since(begun)%(5*time.Second) == 0 {
				f.reports(user(0, 20, "al"))
			}
		}
		if since := time.Since(last); since < 12500*time.Millisecond {
			t.Errorf("%v after the store lost all, the second tells %q, %v after the first could", time.Since(lost), f.told, since)
		}
		silent.Store(false)
		if time.Sleep(time.Second); a.DividedDomains()["d"] || !b.DividedDomains()["d"] {
			t.Error("the first does not follow the store")
		}
	})
}

// TestRulesHaveRoles has rules lose their quotas, and get them again: the role is given back, and taken.
func TestRulesHaveRoles(t *testing.T) {
	r := newShelf()
	without := servertest.Compile(t, "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: second, requests_per_unit: 9 } }]")
	playRoles(t, []rlqs.Elector{r, r}, func(all []*stage) {
		a, b := all[0], all[1]
		with := a.set.Load()
		a.set.Store(without)
		a.RulesChanged()
		if time.Sleep(2 * time.Second); len(a.DividedDomains()) > 0 || !b.DividedDomains()["d"] {
			t.Errorf("they serve %v and %v, want the second", a.DividedDomains(), b.DividedDomains())
		}
		if err := a.refusal(); err != nil { // it is about no quota
			t.Errorf("without quotas a stream ends with %v", err)
		}
		e := a.envoy()
		e.reports(user(1, 0, "al"))
		a.set.Store(with)
		a.RulesChanged()
		if e.take(); len(e.told) > 0 {
			t.Errorf("before the role is asked for, Envoy is told %q", e.told)
		}
		if time.Sleep(time.Second); status.Code(e.Err()) != codes.Unavailable {
			t.Errorf("the stream that another should have goes on: %v", e.Err())
		}
		e.Close()
		b.set.Store(without)
		b.RulesChanged()
		if time.Sleep(2 * time.Second); !a.DividedDomains()["d"] {
			t.Error("the role that the second gave back is nobody's")
		}
	})
}

// TestRulesChangeWithinAReport has a stream end because of new rules that a part of its report is the first to meet.
func TestRulesChangeWithinAReport(t *testing.T) {
	without := servertest.Compile(t, "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: second, requests_per_unit: 9 } }]")
	playRoles(t, []rlqs.Elector{newShelf()}, func(all []*stage) {
		s := all[0]
		with := s.set.Load()
		s.set.Store(without)
		s.RulesChanged()
		e := s.envoy()
		b := servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{
			Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, "al"), user(1, 0, "bo")},
		})
		must.OK(t, e.Feed(b[:10], false))
		s.set.Store(with)
		if err := e.Feed(b[10:len(b)-5], false); status.Code(err) != codes.Unavailable {
			t.Errorf("Report = %v, want UNAVAILABLE", err)
		}
		e.Close()
		passes(time.Minute)
		if held := s.MemoryBytes(); held != 0 {
			t.Errorf("%d bytes are held without a stream", held)
		}
	})
}

// TestHostileRoles has stores lie: the service lives, and answers. What is divided then is docs/rlqs.md's to say.
func TestHostileRoles(t *testing.T) {
	var n atomic.Int64
	for name, tc := range map[string]struct {
		lie     roles
		divides bool // all the time
	}{
		"it is yours":    {func(h string, _ time.Duration, _ []string, answer func(int, string)) { answer(0, h) }, true},
		"it is nobody's": {func(h string, _ time.Duration, _ []string, answer func(int, string)) { answer(0, "") }, true},
		"it is another's": {func(h string, _ time.Duration, _ []string, answer func(int, string)) {
			answer(0, strings.Repeat("x\n\xff", 1000))
		}, false},
		"nothing": {func(string, time.Duration, []string, func(int, string)) {}, false},
		"panics":  {func(string, time.Duration, []string, func(int, string)) { panic("lie") }, false},
		"now this now that": {func(h string, _ time.Duration, _ []string, answer func(int, string)) {
			answer(0, []string{h, "", "x"}[n.Add(1)%3])
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			playRoles(t, []rlqs.Elector{tc.lie}, func(all []*stage) {
				for range 60 {
					time.Sleep(time.Second)
					if err := all[0].refusal(); err != nil && (tc.divides || status.Code(err) != codes.Unavailable || len(err.Error()) > 300) {
						t.Fatalf("a stream ends with %v", err)
					}
				}
				if got := all[0].DividedDomains()["d"]; got != tc.divides && n.Load() == 0 {
					t.Errorf("it divides: %v", got)
				}
				all[0].Resign()
			})
		})
	}
}
