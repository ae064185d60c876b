package quota_test

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// during runs a load of a user on all Envoys, each with its own pause between requests, while do runs.
func (s *stage) during(t *testing.T, user string, every []time.Duration, do func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i, pause := range every {
		load.Go(func() { s.load(ctx, t, i, user, pause) })
	}
	do()
	cancel()
	load.Wait()
}

// passed returns how many requests of a user an Envoy has let pass; -1 is all of them.
func (s *stage) passed(at int, user string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.admitted {
		if a.user == user && (at < 0 || a.envoy == at) {
			n++
		}
	}
	return n
}

// inASecond returns how many requests of a user pass at an Envoy within a second; at all of them if at is negative.
func (s *stage) inASecond(at int, user string) int {
	before := s.passed(at, user)
	time.Sleep(time.Second)
	return s.passed(at, user) - before
}

// awaitShares waits until each Envoy has let pass a request of the user.
func (s *stage) awaitShares(t *testing.T, user string) {
	t.Helper()
	for i := range s.envoys {
		suite.Eventually(t, "a share of each Envoy", func() bool { return s.ask(t.Context(), t, i, user) })
	}
}

// TestOneByteDisturbsNobody has an end client send a byte that is no text, in the header that is the bucket's id: its own
// bucket gets nothing, and nobody else's loses anything.
func TestOneByteDisturbsNobody(t *testing.T) {
	t.Parallel()
	s := play(t, hundredASecond, 1)
	s.awaitShares(t, "al")
	if s.ask(t.Context(), t, 0, "b\xffb") {
		t.Error("a request is let pass whose bucket cannot be assigned anything")
	}
	for range 2 { // two reports have the byte
		was := s.metric(t, "sluice_quota_ignored_usages_total", `reason="invalid_utf8"`)
		suite.Eventually(t, "a report with the byte", func() bool { return s.metric(t, "sluice_quota_ignored_usages_total", `reason="invalid_utf8"`) > was })
	}
	s.awaitShares(t, "cy") // who is new, and asks after it
	if !s.ask(t.Context(), t, 0, "al") {
		t.Error("who had a share before has lost it")
	}
	if n := s.metric(t, "sluice_quota_streams"); n != 1 {
		t.Errorf("%g streams are open", n)
	}
	if s.ask(t.Context(), t, 0, strings.Repeat("x", 5000)) {
		t.Error("a request is let pass whose bucket's id is too long")
	}
	s.awaitShares(t, "di")
}

// TestEnvoyDies kills one of two Envoys: the other has more than its half of the limit in the end, and never more than
// there is.
func TestEnvoyDies(t *testing.T) {
	t.Parallel()
	s := play(t, hundredASecond, 2)
	s.awaitShares(t, "al")
	s.during(t, "al", []time.Duration{5 * time.Millisecond}, func() {
		s.during(t, "al", []time.Duration{time.Hour, 5 * time.Millisecond}, func() { time.Sleep(8 * time.Second) })
		died := time.Now()
		s.envoys[1].Kill()
		suite.Eventually(t, "the other Envoy has most of the limit", func() bool { return s.inASecond(0, "al") >= 80 })
		t.Logf("after %.1f s the other Envoy lets 80 a second pass", time.Since(died).Seconds())
	})
	s.hold(t, "al", 100, 20)
}

// TestServiceAway has sluice be away for less than assignments last, by a kill: Envoys go on, and never let pass more.
func TestServiceAway(t *testing.T) {
	t.Parallel()
	s := play(t, hundredASecond, 2)
	s.awaitShares(t, "al")
	s.during(t, "al", []time.Duration{5 * time.Millisecond, 50 * time.Millisecond}, func() {
		time.Sleep(12 * time.Second)
		before := s.passed(-1, "al")
		time.Sleep(4 * time.Second)
		steady := s.passed(-1, "al") - before
		s.sluice.Kill()
		before = s.passed(-1, "al")
		time.Sleep(4 * time.Second)
		away := s.passed(-1, "al") - before
		s.startSluice(t)
		before = s.passed(-1, "al")
		time.Sleep(20 * time.Second)
		t.Logf("in 4 s: %d with the service, %d without; in the 20 s after it has come back: %d", steady, away, s.passed(-1, "al")-before)
	})
	s.hold(t, "al", 100, 2*20)
}

// TestServiceAwayForLong has sluice be away until shares have ended: Envoy then does what its configuration says, which is
// to deny here, and has a share again when sluice is back.
func TestServiceAwayForLong(t *testing.T) {
	t.Parallel()
	s := play(t, hundredASecond, 1)
	s.awaitShares(t, "al")
	s.sluice.Kill()
	suite.Eventually(t, "shares have ended", func() bool {
		time.Sleep(100 * time.Millisecond) // in which a share brings ten requests
		return !s.ask(t.Context(), t, 0, "al")
	})
	s.startSluice(t)
	s.awaitShares(t, "al")
	s.hold(t, "al", 100, 2*10)
}

// TestDrain ends sluice in order, and starts another: Envoys come again.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := play(t, hundredASecond, 1)
	s.awaitShares(t, "al")
	begun := time.Now()
	must.OK(t, s.sluice.Signal(syscall.SIGTERM))
	if code, err := s.sluice.Wait(t.Context()); err != nil || code != 0 {
		t.Errorf("sluice ends with %d, %v", code, err)
	}
	t.Logf("it took %v to end", time.Since(begun))
	s.startSluice(t)
	suite.Eventually(t, "Envoy has come again", func() bool { return s.metric(t, "sluice_quota_streams") == 1 })
	s.awaitShares(t, "bo")
}

// TestRulesChange lowers a limit while Envoys have shares of it.
func TestRulesChange(t *testing.T) {
	t.Parallel()
	s := play(t, hundredASecond, 2)
	s.awaitShares(t, "al")
	s.during(t, "al", []time.Duration{5 * time.Millisecond, 5 * time.Millisecond}, func() {
		time.Sleep(5 * time.Second)
		s.write(t, strings.Replace(hundredASecond, "100", "40", 1))
		suite.Eventually(t, "both Envoys have a share of the lower limit", func() bool { b := s.largest(t); return b.confirmed(2, 40) })
		time.Sleep(process.ScaleByLoad(time.Second)) // in which their threads have it
		from := time.Since(s.begun)
		time.Sleep(5 * time.Second)
		s.since(from)
	})
	s.hold(t, "al", 40, 20)
}

// TestRulesGiveAndTake raises a limit while Envoys have demand, takes its quota away, gives it back and removes the rule.
func TestRulesGiveAndTake(t *testing.T) {
	t.Parallel()
	s := play(t, hundredASecond, 2)
	s.awaitShares(t, "al")
	passes := func(least, most int) func() bool { // in a second
		return func() bool {
			n := s.inASecond(-1, "al")
			return n >= least && n <= most
		}
	}
	s.during(t, "al", []time.Duration{4 * time.Millisecond, 4 * time.Millisecond}, func() {
		suite.Eventually(t, "the limit is used", passes(60, 130))
		s.write(t, strings.Replace(hundredASecond, "100", "200", 1))
		suite.Eventually(t, "the higher limit is used", passes(140, 240))
		s.hold(t, "al", 200, 2*20)
		s.write(t, strings.Replace(hundredASecond, ", quota: { burst: 0.1s, min_tokens: 4 }", "", 1))
		suite.Eventually(t, "nothing is assigned without quota", passes(0, 0))
		s.write(t, hundredASecond)
		suite.Eventually(t, "the limit is back", passes(60, 130))
		s.write(t, "domain: d\ndescriptors: [{ key: other }]\n")
		suite.Eventually(t, "nothing is assigned without a rule", passes(0, 0))
	})
	s.hold(t, "al", 200, 2*20)
}

// TestEnvoyJoins starts an Envoy while another has all of the limit: it gets a share, and never more passes than the limit.
func TestEnvoyJoins(t *testing.T) {
	t.Parallel()
	s := play(t, hundredASecond, 1)
	s.awaitShares(t, "al")
	s.during(t, "al", []time.Duration{4 * time.Millisecond}, func() {
		time.Sleep(6 * time.Second)
		s.startEnvoy(t)
		s.during(t, "al", []time.Duration{time.Hour, 4 * time.Millisecond}, func() {
			suite.Eventually(t, "who joined has a third of the limit", func() bool { return s.inASecond(1, "al") >= 33 })
		})
	})
	s.hold(t, "al", 100, 2*20)
}
