package blocks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// millions is the number of requests of the long TestFailovers.
const millions = 10_000_000

// TestFailovers has Sentinels replace the primary again and again, while replicas are killed and
// stopped and connections are lost. An interval exceeds its bound only if the primary was replaced in
// it: at most once more for each time, because the new primary may lack hits. With SLUICE_EFFORT=100 the test lasts until 10 million requests are answered, or almost
// until the deadline of `go test`:
//
//	SLUICE_EFFORT=100 go test ./e2e/blocks -count=1 -v -timeout 30m -run TestFailovers
func TestFailovers(t *testing.T) {
	t.Parallel()
	primary := storetest.Start(t)
	other := storetest.StartReplica(t, primary)
	sentinels := storetest.StartSentinels(t, primary, 1, 3)
	setPatience(sentinels, time.Hour)
	var addrs []string
	for _, s := range sentinels {
		addrs = append(addrs, s.Addr)
	}
	mixed := append([]mixClient{}, clients...)
	for n := range times(t, 20, 600) { // calendar windows that are used up once
		unit := []string{"day", "week", "month", "year"}[n%4]
		mixed = append(mixed, mixClient{name: fmt.Sprintf("calendar%d", n), descriptors: [][]limit{{calendar(3000, unit, zones[n%len(zones)], 2+n%59)}}})
	}
	m := startMix(t, primary, direct(primary), mixed, 2*time.Second,
		"--store", "redis+sentinel://"+strings.Join(addrs, ",")+"/main", "--store-fallback", "error")
	stop := m.roam(t, len(clients))
	events := m.events(t, nil)
	end := time.Now().Add(24 * time.Hour)
	if deadline, ok := t.Deadline(); ok {
		end = deadline.Add(-time.Minute)
	}
	for n := 0; n == 0 || long(t) && m.requests.Load() < millions && time.Now().Before(end); n++ {
		for _, name := range []string{"kill", "CLIENT KILL", "SIGSTOP of a sluice", "CLIENT KILL", "SIGTERM", "CLIENT KILL"} {
			end := events[name](rand.IntN(len(m.services)))
			wait(t.Context(), between(0, mixTimeout))
			end()
		}
		from, to := m.failOver(t, sentinels, other, n%2 == 1)
		m.allow(everyone, m.at(from), m.at(to))
		m.allowRefill(m.at(from), m.at(to))
		m.store, other = other, m.store
		before := m.requests.Load()
		suite.Eventually(t, "requests are decided", func() bool { return m.requests.Load() > before+500 })
	}
	stop()
	t.Logf("%d requests answered and %d not", m.requests.Load(), m.failed.Load())
	m.verify(t, 1)
}

// mostLag bounds the age of the hits that a new primary lacks when the failover begins. Only a machine
// that is too busy to run the replica for so long exceeds it.
const mostLag = time.Second

// allowRefill allows the refill of all buckets once more while two primaries may decide: an interval
// has the hits of both.
func (m *mix) allowRefill(from, to int64) {
	const slice = 10 * time.Millisecond
	for _, all := range m.counters {
		for _, c := range all {
			if !c.bucket() {
				continue
			}
			c.mu.Lock()
			refill := func(d time.Duration) int { return int(int64(c.n) * int64(d) / int64(c.window)) }
			c.extra = append(c.extra, span{from, to, 1 + refill(mostLag)})
			for d := time.Duration(0); d < time.Duration(to-from); d += slice {
				at := from + int64(d)
				c.extra = append(c.extra, span{at, at + int64(slice), refill(d+slice) - refill(d)})
			}
			c.mu.Unlock()
		}
	}
}

// roam sends bursts and moving demand of the first n clients, all at the same time, and of the others
// one after the other, until the returned function is called.
func (m *mix) roam(t *testing.T, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var roamers sync.WaitGroup
	for which := range n {
		roamers.Go(func() {
			for ctx.Err() == nil {
				if rand.IntN(3) > 0 {
					m.round(ctx, []int{which}, anyPace(), noEvent)
					continue
				}
				for end := time.Now().Add(between(200*time.Millisecond, 2*time.Second)); time.Now().Before(end) && ctx.Err() == nil; {
					m.burst(ctx, which, 0, 1, 2)
				}
			}
		})
	}
	roamers.Go(func() {
		for which := n; which < len(m.clients) && ctx.Err() == nil; which++ {
			m.round(ctx, []int{which}, anyPace(), noEvent)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		roamers.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// setPatience sets the time after which Sentinels replace a primary that does not answer, and repeat
// a failover. A busy machine may delay answers by seconds, so it is long, except while a test stops
// the primary.
func setPatience(sentinels []*storetest.Server, after time.Duration) {
	for _, s := range sentinels {
		ms := strconv.FormatInt(after.Milliseconds(), 10)
		s.Must("SENTINEL", "SET", "main", "down-after-milliseconds", ms, "failover-timeout", ms)
	}
}

// failOver replaces the primary by a replica, by a request or because the primary has stopped until
// then, and waits until the former primary is a replica, some ten seconds later. It returns when the
// failover began, and when the former primary executed the last script: later hits are counted by the
// new one.
func (f *fleet) failOver(t *testing.T, sentinels []*storetest.Server, replica *storetest.Server, stall bool) (from, to time.Time) {
	t.Helper()
	isPrimary := func(s *storetest.Server) bool {
		role, err := s.Command("ROLE")
		return err == nil && strings.HasPrefix(role, "master")
	}
	if stall {
		setPatience(sentinels, 2*time.Second)
		from = time.Now()
		f.store.Stop()
		suite.Eventually(t, "the replica replaces a stopped primary", func() bool { return isPrimary(replica) })
		f.store.Continue()
		setPatience(sentinels, time.Hour)
	} else {
		suite.Eventually(t, "the failover begins", func() bool {
			from = time.Now()
			_, err := sentinels[0].Command("SENTINEL", "FAILOVER", "main")
			return err == nil
		})
	}
	decided := -1
	suite.Eventually(t, "the replica is the primary", func() bool {
		former := isPrimary(f.store)
		if n, err := scripts(f.store); err == nil && former && n != decided {
			decided, to = n, time.Now()
		}
		return isPrimary(replica) && !former
	})
	return from, to
}

// scripts returns the number of scripts and increments that a server has executed. It fails if the
// server closes its connections because it becomes a replica.
func scripts(s *storetest.Server) (n int, err error) {
	stats, err := s.Command("INFO", "commandstats")
	for line := range strings.Lines(stats) {
		name, rest, _ := strings.Cut(line, ":calls=")
		if slices.Contains([]string{"cmdstat_eval", "cmdstat_evalsha", "cmdstat_incrby"}, name) {
			calls, _, _ := strings.Cut(rest, ",")
			count, _ := strconv.Atoi(calls)
			n += count
		}
	}
	return n, err
}
