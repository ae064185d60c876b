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
	"github.com/sluice-ratelimit/sluice/rlqs"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// fakeElector is an elector in memory that uses the clock of the test. store.TestLeadership checks
// the same behavior with a store.
type fakeElector struct {
	mu      sync.Mutex
	leaders map[string]string
	until   map[string]time.Time
	// If not nil, these are called before and after a request is processed. If they return true,
	// the request or the reply is lost.
	beforeAcquire, afterAcquire func() (lost bool)
}

func newFakeElector() *fakeElector {
	return &fakeElector{leaders: map[string]string{}, until: map[string]time.Time{}}
}

// AcquireLeadership implements [quota.Elector].
func (s *fakeElector) AcquireLeadership(candidate string, ttl time.Duration, domains []string, report func(i int, previous string)) {
	if s.beforeAcquire != nil && s.beforeAcquire() {
		return
	}
	previous := make([]string, len(domains))
	s.mu.Lock()
	for i, domain := range domains {
		if !time.Now().Before(s.until[domain]) {
			delete(s.leaders, domain)
		}
		if previous[i] = s.leaders[domain]; previous[i] == "" || previous[i] == candidate {
			s.leaders[domain], s.until[domain] = candidate, time.Now().Add(ttl)
		}
	}
	s.mu.Unlock()
	if s.afterAcquire != nil && s.afterAcquire() {
		return
	}
	for i := range domains {
		report(i, previous[i])
	}
}

// loseAll removes all leaderships, as a store does that restarts without its data.
func (s *fakeElector) loseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.leaders)
}

// electorFunc implements [quota.Elector].
type electorFunc func(candidate string, ttl time.Duration, domains []string, report func(i int, previous string))

// AcquireLeadership implements [quota.Elector].
func (f electorFunc) AcquireLeadership(candidate string, ttl time.Duration, domains []string, report func(i int, previous string)) {
	f(candidate, ttl, domains, report)
}

// runReplicas runs a test with one service for each elector, named host-0, host-1 and so on.
func runReplicas(t *testing.T, electors []quota.Elector, test func(all []*testService)) {
	t.Helper()
	set, metrics := servertest.Compile(t, divided), servertest.Metrics(t)
	synctest.Test(t, func(t *testing.T) {
		var all []*testService
		for i, elector := range electors {
			s := &testService{t: t, metrics: metrics}
			s.set.Store(set)
			begun := time.Now()
			s.Service = rlqs.New(quota.Options{
				Elapsed: func() time.Duration { return time.Since(begun) + time.Hour + time.Duration(s.paused.Load()) }, Rules: func() *descriptors.Set { return s.set.Load() }, Metrics: metrics,
				Count:  func(*descriptors.Set, *descriptors.Rule, []descriptors.Entry, uint64, uint64, uint64) {},
				Panics: telemetry.NewPanics(metrics.Panics, zap.NewNop()), Elector: elector, Name: fmt.Sprintf("host-%d", i),
			})
			all = append(all, s)
			synctest.Wait() // so that the first service becomes the leader
		}
		defer func() {
			for _, s := range all {
				s.Close()
			}
			time.Sleep(time.Minute) // until all requests have been answered
		}()
		test(all)
	})
}

// reportOnNewStream opens a stream and returns the result of its first report.
func (s *testService) reportOnNewStream() error {
	e := s.openEnvoy()
	defer e.Close()
	return e.Feed(servertest.Marshal(s.t, &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, "al")}}), true)
}

// tokensPerFill returns the rate of the last assignment for the user al, 0 for none.
func (e *envoy) tokensPerFill() (perHour int) {
	_, _ = fmt.Sscanf(e.received["map[sluice:user user:al]"], "%d tokens, %d in", new(int), &perHour)
	return perHour
}

// TestOneReplicaDivides has two services compete for a domain: one is the leader until it resigns.
func TestOneReplicaDivides(t *testing.T) {
	r := newFakeElector()
	runReplicas(t, []quota.Elector{r, r}, func(all []*testService) {
		a, b := all[0], all[1]
		if !a.DividedDomains()["d"] || b.DividedDomains()["d"] || len(b.DividedDomains()) != 1 {
			t.Fatalf("the services divide %v and %v", a.DividedDomains(), b.DividedDomains())
		}
		if err := b.reportOnNewStream(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "host-0") {
			t.Errorf("the service that is not the leader returns %v", err)
		}
		time.Sleep(time.Minute)
		e := a.openEnvoy()
		e.report(user(1, 0, "al"))
		if e.tokensPerFill() != 360_000 {
			t.Errorf("Envoy receives %q", e.received)
		}
		woken := e.wakes.Load()
		a.Resign()
		a.Resign()
		if err := e.Err(); status.Code(err) != codes.Unavailable || e.wakes.Load() == woken {
			t.Errorf("after Resign the stream fails with %v, woken: %v", err, e.wakes.Load() > woken)
		}
		if err := e.Feed(nil, true); status.Code(err) != codes.Unavailable {
			t.Errorf("the next report on the stream returns %v", err)
		}
		e.Close()
		if err := a.reportOnNewStream(); status.Code(err) != codes.Unavailable {
			t.Errorf("after Resign a new stream returns %v", err)
		}
		if time.Sleep(time.Second); !b.DividedDomains()["d"] || a.DividedDomains()["d"] {
			t.Error("the other service is not the leader a second later")
		}
	})
}

// TestDomainRemovedAndRestored changes the rules twice while a request to the store is in flight. The
// release of the domain, which is due after the first change, must not follow its renewal.
func TestDomainRemovedAndRestored(t *testing.T) {
	other := servertest.Compile(t, strings.Replace(divided, "domain: d", "domain: other", 1))
	back := servertest.Compile(t, divided)
	shared := newFakeElector()
	shared.beforeAcquire = func() bool {
		time.Sleep(50 * time.Millisecond)
		return false
	}
	runReplicas(t, []quota.Elector{shared, shared}, func(all []*testService) {
		time.Sleep(20 * time.Second)
		a, b := all[0], all[1]
		for try := range 20 {
			time.Sleep(time.Duration(5000+23*try) * time.Millisecond)
			if !a.DividedDomains()["d"] {
				a, b = b, a
			}
			for _, set := range []*descriptors.Set{other, back} {
				a.set.Store(set)
				a.RulesChanged()
				time.Sleep(10 * time.Millisecond)
			}
			for range 200 {
				if a.DividedDomains()["d"] && b.DividedDomains()["d"] {
					t.Errorf("try %d: two services divide a domain", try)
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
}

// TestResignDuringRenewal has a renewal reach the store after the service has resigned: the service
// does not become the leader again.
func TestResignDuringRenewal(t *testing.T) {
	r := newFakeElector()
	var late, requested atomic.Bool
	slow := electorFunc(func(candidate string, ttl time.Duration, domains []string, report func(i int, previous string)) {
		if ttl > 0 && late.Load() {
			requested.Store(true)
			time.Sleep(100 * time.Millisecond)
		}
		r.AcquireLeadership(candidate, ttl, domains, report)
	})
	runReplicas(t, []quota.Elector{slow, r}, func(all []*testService) {
		a, b := all[0], all[1]
		time.Sleep(time.Minute)
		for late.Store(true); !requested.Load(); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // until the other service has no request in flight
		a.Resign()
		if time.Sleep(time.Second); !b.DividedDomains()["d"] || a.DividedDomains()["d"] {
			t.Errorf("a second after Resign the services divide %v and %v", a.DividedDomains(), b.DividedDomains())
		}
	})
}

// TestFailover stops the leader without notice. Its successor does not know the shares: an Envoy
// keeps the rate that it reports, and no Envoy gets more until all assignments of the first leader
// have expired.
func TestFailover(t *testing.T) {
	r := newFakeElector()
	runReplicas(t, []quota.Elector{r, r}, func(all []*testService) {
		a, b := all[0], all[1]
		time.Sleep(time.Minute)
		e := a.openEnvoy()
		e.report(user(1, 0, "al"))
		a.Close() // without releasing the leadership
		died := time.Now()
		for !b.DividedDomains()["d"] {
			time.Sleep(time.Millisecond)
		}
		if elapsed := time.Since(died); elapsed < 3*time.Second || elapsed > 5*time.Second {
			t.Errorf("the other service is the leader after %v, want 3 to 5 s", elapsed)
		}
		e, f := b.openEnvoy(), b.openEnvoy()
		e.report(user(200, 0, "al"))
		first := user(1, 0, "al")
		first.TimeElapsed = nil
		f.report(first)
		if e.tokensPerFill() != 40*3600 {
			t.Errorf("an Envoy that admitted 40 requests a second receives %q", e.received)
		}
		divided := time.Duration(0) // when more than the reported rate is assigned
		for begun := time.Now(); divided == 0 && time.Since(begun) < time.Minute; time.Sleep(100 * time.Millisecond) {
			e.receive()
			f.receive()
			switch sum := e.tokensPerFill() + f.tokensPerFill(); {
			case sum > 360_000:
				t.Fatalf("the assigned rates add up to %d", sum)
			case sum > 40*3600:
				divided = time.Since(begun)
			}
			if since := time.Since(begun); since%(5*time.Second) == 0 {
				e.report(user(200, 0, "al"))
				f.report(user(200, 0, "al"))
			}
		}
		// The first leader could assign rates for 3 s, and these last for 12.5 s.
		if divided < 15*time.Second || divided > 21*time.Second {
			t.Errorf("the rest of the limit is divided after %v, want 15.5 s, or at the next report", divided)
		}
	})
}

// TestLeadershipExpires has the store stop responding. Queued messages are not sent once another
// service may be the leader, and streams fail. Nothing waits for the store.
func TestLeadershipExpires(t *testing.T) {
	var silent atomic.Bool
	r := newFakeElector()
	r.beforeAcquire = func() bool {
		if silent.Load() {
			time.Sleep(30 * time.Second) // far longer than the test takes
		}
		return false
	}
	runReplicas(t, []quota.Elector{r}, func(all []*testService) {
		time.Sleep(time.Minute)
		e, f := all[0].openEnvoy(), all[0].openEnvoy()
		e.report(user(1, 0, "al"))
		silent.Store(true)
		time.Sleep(2400 * time.Millisecond) // the last renewal was at most half a second earlier
		e.report(user(1, 0, "bo"))
		if len(e.received) != 2 {
			t.Errorf("while the service is the leader, Envoy receives %q", e.received)
		}
		f.report(user(1, 0, "cy"))
		if err := e.Feed(servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, "di")}}), true); err != nil {
			t.Error(err)
		}
		time.Sleep(601 * time.Millisecond)
		if b, seq, _ := e.AppendMessage(nil); len(b) > 0 || seq > 0 {
			t.Errorf("%d bytes are sent after the leadership has expired", len(b))
		}
		time.Sleep(time.Second)
		for _, stream := range []*envoy{e, f} {
			if status.Code(stream.Err()) != codes.Unavailable {
				t.Errorf("a stream fails with %v", stream.Err())
			}
			stream.Close()
		}
		if all[0].DividedDomains()["d"] {
			t.Error("the service divides without being the leader")
		}
		go all[0].Resign() // may wait for the store
	})
}

// TestPausedProcess suspends a process, as when its machine stops: its clock continues, but its
// timers do not run. Messages that were queued before are not sent afterwards.
func TestPausedProcess(t *testing.T) {
	runReplicas(t, []quota.Elector{newFakeElector()}, func(all []*testService) {
		time.Sleep(time.Minute)
		e := all[0].openEnvoy()
		e.report(user(1, 0, "al"))
		report := servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, "bo")}})
		must.OK(t, e.Feed(report, true))
		all[0].paused.Store(int64(3 * time.Second))
		if b, seq, _ := e.AppendMessage(nil); len(b) > 0 || seq > 0 {
			t.Errorf("%d bytes are sent when another service may be the leader", len(b))
		}
		if err := e.Feed(report, true); err != nil && status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		if b, seq, _ := e.AppendMessage(nil); len(b) > 0 || seq > 0 {
			t.Errorf("%d bytes are sent when another service may be the leader", len(b))
		}
		if time.Sleep(time.Second); status.Code(e.Err()) != codes.Unavailable {
			t.Errorf("the stream fails with %v", e.Err())
		}
		e.Close()
		if !all[0].DividedDomains()["d"] {
			t.Error("the service does not become the leader again")
		}
	})
}

// TestLeadershipReacquired has the store lose the leadership of the only service. Another service
// might have had it in between, so streams fail, and Envoys keep the rates that they report. Rates
// assigned in the earlier leadership do not count twice.
func TestLeadershipReacquired(t *testing.T) {
	r := newFakeElector()
	runReplicas(t, []quota.Elector{r}, func(all []*testService) {
		time.Sleep(time.Minute)
		e := all[0].openEnvoy()
		e.report(user(300, 0, "al"))
		r.loseAll()
		if time.Sleep(time.Second); status.Code(e.Err()) != codes.Unavailable {
			t.Errorf("the stream fails with %v", e.Err())
		}
		e.Close()
		e = all[0].openEnvoy()
		if e.report(user(200, 0, "al")); e.tokensPerFill() != 40*3600 {
			t.Errorf("an Envoy that admitted 40 requests a second receives %q", e.received)
		}
	})
}

// TestStoreLosesLeadership has the store lose a leadership while the leader cannot reach it.
// Another service becomes the leader, and assigns nothing until the last assignments of the first
// one have expired.
func TestStoreLosesLeadership(t *testing.T) {
	r := newFakeElector()
	var silent atomic.Bool
	unreachable := electorFunc(func(candidate string, ttl time.Duration, domains []string, report func(i int, previous string)) {
		if !silent.Load() {
			r.AcquireLeadership(candidate, ttl, domains, report)
		}
	})
	runReplicas(t, []quota.Elector{unreachable, r}, func(all []*testService) {
		a, b := all[0], all[1]
		time.Sleep(time.Minute)
		e := a.openEnvoy()
		e.report(user(1, 0, "al"))
		silent.Store(true)
		r.loseAll()
		lost := time.Now()
		for !b.DividedDomains()["d"] {
			time.Sleep(time.Millisecond)
		}
		if !a.DividedDomains()["d"] {
			t.Fatal("the first service is no longer the leader, so this test proves nothing")
		}
		last := time.Time{} // when the first service could last assign a rate
		f := b.openEnvoy()
		first := user(1, 0, "al")
		first.TimeElapsed = nil
		f.report(first)
		for begun := time.Now(); len(f.received) == 0 && time.Since(begun) < time.Minute; time.Sleep(50 * time.Millisecond) {
			if a.DividedDomains()["d"] {
				last = time.Now()
			}
			if f.receive(); time.Since(begun)%(5*time.Second) == 0 {
				f.report(user(0, 20, "al"))
			}
		}
		if since := time.Since(last); since < 12500*time.Millisecond {
			t.Errorf("%v after the loss the second service assigns %q, only %v after the first one could", time.Since(lost), f.received, since)
		}
		silent.Store(false)
		if time.Sleep(time.Second); a.DividedDomains()["d"] || !b.DividedDomains()["d"] {
			t.Error("after the store is reachable again, the first service divides, or the second does not")
		}
	})
}

// TestRulesChangeLeadership removes quotas from the rules of the leader, which releases the
// leadership, and adds them again.
func TestRulesChangeLeadership(t *testing.T) {
	r := newFakeElector()
	without := servertest.Compile(t, "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: second, requests_per_unit: 9 } }]")
	runReplicas(t, []quota.Elector{r, r}, func(all []*testService) {
		a, b := all[0], all[1]
		with := a.set.Load()
		a.set.Store(without)
		a.RulesChanged()
		if time.Sleep(2 * time.Second); len(a.DividedDomains()) > 0 || !b.DividedDomains()["d"] {
			t.Errorf("the services divide %v and %v, want only the second to divide", a.DividedDomains(), b.DividedDomains())
		}
		if err := a.reportOnNewStream(); err != nil { // its domain has no quota
			t.Errorf("without quotas a stream fails with %v", err)
		}
		e := a.openEnvoy()
		e.report(user(1, 0, "al"))
		a.set.Store(with)
		a.RulesChanged()
		if e.receive(); len(e.received) > 0 {
			t.Errorf("before the service is the leader, Envoy receives %q", e.received)
		}
		if time.Sleep(time.Second); status.Code(e.Err()) != codes.Unavailable {
			t.Errorf("the stream of a service that is not the leader fails with %v", e.Err())
		}
		e.Close()
		b.set.Store(without)
		b.RulesChanged()
		if time.Sleep(2 * time.Second); !a.DividedDomains()["d"] {
			t.Error("the first service does not acquire the released leadership")
		}
	})
}

// TestRulesChangeDuringReport activates rules in the middle of a report. The service notices them
// in Feed, which fails the stream, since the service is not the leader of the new domain.
func TestRulesChangeDuringReport(t *testing.T) {
	without := servertest.Compile(t, "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: second, requests_per_unit: 9 } }]")
	runReplicas(t, []quota.Elector{newFakeElector()}, func(all []*testService) {
		s := all[0]
		with := s.set.Load()
		s.set.Store(without)
		s.RulesChanged()
		e := s.openEnvoy()
		b := servertest.Marshal(t, &rlqsv3.RateLimitQuotaUsageReports{
			Domain: "d", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{user(1, 0, "al"), user(1, 0, "bo")},
		})
		must.OK(t, e.Feed(b[:10], false))
		s.set.Store(with)
		if err := e.Feed(b[10:len(b)-5], false); status.Code(err) != codes.Unavailable {
			t.Errorf("Feed = %v, want UNAVAILABLE", err)
		}
		e.Close()
		advance(time.Minute)
		if n := s.MemoryBytes(); n != 0 {
			t.Errorf("%d bytes are in use without a stream", n)
		}
	})
}

// TestHostileElector has electors report wrong leaders, nothing, or panic: the service keeps
// serving. docs/rlqs.md says what is divided then.
func TestHostileElector(t *testing.T) {
	var n atomic.Int64
	for name, tc := range map[string]struct {
		elector electorFunc
		divides bool // whether the service always divides
	}{
		"the candidate": {func(candidate string, _ time.Duration, _ []string, report func(int, string)) { report(0, candidate) }, true},
		"none":          {func(_ string, _ time.Duration, _ []string, report func(int, string)) { report(0, "") }, true},
		"another": {func(_ string, _ time.Duration, _ []string, report func(int, string)) {
			report(0, strings.Repeat("x\n\xff", 1000))
		}, false},
		"no report": {func(string, time.Duration, []string, func(int, string)) {}, false},
		"a panic":   {func(string, time.Duration, []string, func(int, string)) { panic("elector") }, false},
		"changing": {func(candidate string, _ time.Duration, _ []string, report func(int, string)) {
			report(0, []string{candidate, "", "x"}[n.Add(1)%3])
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			runReplicas(t, []quota.Elector{tc.elector}, func(all []*testService) {
				for range 60 {
					time.Sleep(time.Second)
					if err := all[0].reportOnNewStream(); err != nil && (tc.divides || status.Code(err) != codes.Unavailable || len(err.Error()) > 300) {
						t.Fatalf("a stream fails with %v", err)
					}
				}
				if got := all[0].DividedDomains()["d"]; got != tc.divides && n.Load() == 0 {
					t.Errorf("the service divides: %v", got)
				}
				all[0].Resign()
			})
		})
	}
}
