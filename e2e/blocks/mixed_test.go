package blocks_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// patient are arguments with which a busy machine causes no outage.
var patient = []string{"--store-timeout", "1m", "--REDIS_TIMEOUT", "1m", "--store-fallback", "error"}

// some returns some clients at random.
func (m *mix) some(n int) []int { return rand.Perm(len(m.clients))[:min(n, len(m.clients))] }

// withBuckets returns the clients that have only a bucket.
func (m *mix) withBuckets() (all []int) {
	for which, c := range m.counters {
		if len(c) == 1 && c[0].bucket() {
			all = append(all, which)
		}
	}
	return all
}

// between returns a random duration.
func between(least, most time.Duration) time.Duration {
	return least + time.Duration(rand.Int64N(int64(most-least)))
}

// pace is the time between the demand at one replica and the bursts of a round.
type pace struct {
	pause  time.Duration
	atOnce bool // the bursts at all replicas begin at the same time
}

// anyPace returns a random pace: blocks are used, have been returned, or have ended.
func anyPace() pace {
	switch rand.IntN(6) {
	case 0, 1:
		return pace{atOnce: true}
	case 2:
		return pace{}
	case 3:
		return pace{pause: between(50*time.Millisecond, 3*time.Second)}
	}
	return pace{pause: between(50*time.Millisecond, 400*time.Millisecond), atOnce: rand.IntN(2) == 0}
}

// round has one replica acquire blocks while the counters are nearly as new, and then sends bursts
// to others, and to all. An event happens before the pause, and ends after the first bursts.
func (m *mix) round(ctx context.Context, which []int, p pace, event func(replica int) (end func())) {
	first := rand.IntN(len(m.services))
	others := []int{(first + 1) % len(m.services), (first + 2) % len(m.services)}[rand.IntN(2):]
	together(which, func(one int) { m.trickle(ctx, first, one, between(300*time.Millisecond, 800*time.Millisecond)) })
	end := event(first)
	if p.pause > 0 {
		wait(ctx, p.pause)
	}
	if p.atOnce {
		end()
		end = func() {}
		others = append(others, first)
	}
	together(which, func(one int) { m.burst(ctx, one, others...) })
	if end(); rand.IntN(2) == 0 {
		wait(ctx, between(50*time.Millisecond, 150*time.Millisecond)) // replicas repeat denials for 50 ms
	}
	together(which, func(one int) { m.burst(ctx, one, first) })
	together(which, func(one int) { m.burst(ctx, one, 0, 1, 2) })
}

func noEvent(int) func() { return func() {} }

// awaitBlocks waits, for one of the given clients after the other, until a request is decided by
// blocks of its limits.
func (m *mix) awaitBlocks(t *testing.T, all []int) {
	t.Helper()
	for _, which := range all {
		before := m.decidedByBlocks(t, 0)
		suite.Eventually(t, m.clients[which].name+" uses blocks", func() bool {
			m.trickle(t.Context(), 0, which, 20*time.Millisecond)
			return m.decidedByBlocks(t, 0) > before
		})
	}
}

// flood sends requests of all clients to all replicas, more than most limits admit.
func (m *mix) flood(t *testing.T, d time.Duration) {
	t.Helper()
	var senders sync.WaitGroup
	for n := range 9 {
		senders.Go(func() {
			for end := time.Now().Add(d); time.Now().Before(end); {
				m.send(t.Context(), n%len(m.services), rand.IntN(len(m.clients)), 1+rand.IntN(4))
			}
		})
	}
	senders.Wait()
}

// TestMixedLimitsAreExact sends bursts and moving demand without faults, on limits of all
// algorithms that use blocks, one or several per request. No interval has more hits than its limit
// allows.
func TestMixedLimitsAreExact(t *testing.T) {
	t.Parallel()
	m := startPatientMix(t, clients)
	hot := slices.DeleteFunc(m.some(len(clients)), func(which int) bool { return slices.Contains([]string{"quick", "slow", "small"}, clients[which].name) })
	m.awaitBlocks(t, hot)
	for range times(t, 2, 30) {
		// One replica has a block of a full bucket, and others get a burst.
		m.round(t.Context(), m.some(3), pace{atOnce: true}, noEvent)
		m.round(t.Context(), m.some(3), anyPace(), noEvent)
	}
	if long(t) {
		m.flood(t, 20*time.Second)
	}
	m.verify(t, 1)
	if n := m.failed.Load(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
}

// TestFloodOfSeveralLimits floods a bucket and a sliding window, in one list and in two descriptors.
// The window denies for some time while the bucket fills. When the window admits requests again, the
// bucket admits no more than its burst and its refill.
func TestFloodOfSeveralLimits(t *testing.T) {
	t.Parallel()
	bucket, window := token(600, time.Second, 900), sliding(2000, 4*time.Second, 8)
	for _, c := range []mixClient{
		{name: "list", descriptors: [][]limit{{bucket, window}}},
		{name: "group", together: true, descriptors: [][]limit{{bucket}, {window}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := startPatientMix(t, []mixClient{c})
			m.flood(t, 6*time.Second) // the window admits its first hits again after 4.5 s
			m.verify(t, 1)
		})
	}
}

// mixTimeout is the store's timeout, which is shorter and longer than the pauses of a round.
const mixTimeout = 500 * time.Millisecond

// everyone selects all clients.
func everyone(int) bool { return true }

// during runs an event that resets the counters of some clients, and allows as much once more.
func (m *mix) during(which func(client int) bool, event func()) {
	from := m.now()
	event()
	m.allow(which, from, m.now())
}

// allow allows the limits of some clients once more after an event between the given times.
func (m *mix) allow(which func(client int) bool, from, to int64) {
	for i, all := range m.counters {
		for _, c := range all {
			if which(i) {
				c.allow(from, to)
			}
		}
	}
}

// events are the faults of a round, with a function that ends each.
func (m *mix) events(t *testing.T, links []*link) map[string]func(replica int) (end func()) {
	t.Helper()
	none := func() {}
	return map[string]func(int) func(){
		"none": noEvent,
		"stall": func(n int) func() {
			links[n].stall(true)
			return func() { links[n].stall(false) }
		},
		"cut": func(n int) func() { links[n].cut(); return none },
		"a stalled connection is cut": func(n int) func() {
			links[n].stall(true)
			return func() { links[n].cut(); links[n].stall(false) }
		},
		"SIGSTOP of a sluice": func(n int) func() {
			s := m.sluices[n].Load()
			must.OK(t, s.Signal(syscall.SIGSTOP))
			return func() { must.OK(t, s.Signal(syscall.SIGCONT)) }
		},
		"SIGSTOP of the store": func(int) func() {
			m.store.Stop()
			wait(t.Context(), between(50*time.Millisecond, 2*mixTimeout))
			m.store.Continue()
			return none
		},
		"CLIENT KILL": func(int) func() { m.store.Must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); return none },
		"FLUSHALL":    func(int) func() { m.during(everyone, func() { m.store.Must("FLUSHALL") }); return none },
		"reset": func(n int) func() {
			which := rand.IntN(len(m.clients))
			c := m.counters[which][rand.IntN(len(m.counters[which]))]
			m.during(func(i int) bool { return i == which }, func() { m.resetCounter(t, (n+rand.IntN(2))%len(m.services), c.domain, c.descriptor) })
			return none
		},
		"kill": func(n int) func() {
			m.sluices[n].Load().Kill()
			return func() { m.restart(t, n) }
		},
		"SIGTERM": func(n int) func() {
			ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
			defer cancel()
			if code, err := m.sluices[n].Load().Stop(ctx); code != 0 || err != nil {
				t.Errorf("Stop() = %d, %v, want 0, nil", code, err)
			}
			return func() { m.restart(t, n) }
		},
	}
}

// startMixWithLinks starts a mix with a link between each sluice and the store.
func startMixWithLinks(t *testing.T, fallback string) (*mix, []*link) {
	t.Helper()
	store := storetest.Start(t)
	var links []*link
	var addrs []string
	for range 3 {
		l := startLink(t, store.Addr)
		links, addrs = append(links, l), append(addrs, l.addr)
	}
	return startMix(t, store, addrs, clients, 2*mixTimeout, "--store-timeout", mixTimeout.String(), "--store-fallback", fallback), links
}

// TestMixedLimitsWithFaults causes a fault in each round. With the fallback error, an interval has
// more hits only if its counter was reset or deleted: once more for each time. With local, each
// replica may admit its own hits too.
func TestMixedLimitsWithFaults(t *testing.T) {
	t.Parallel()
	for _, fallback := range []string{"error", "local"} {
		t.Run(fallback, func(t *testing.T) {
			t.Parallel()
			m, links := startMixWithLinks(t, fallback)
			m.hasty = true
			rounds, starts := times(t, 3, 120), 0
			for begin := m.now(); rounds > 0; {
				events := m.events(t, links)
				// A replica returns a block, the store receives it when the block has ended and the
				// bucket is full again, and another replica has used up the bucket in the meantime.
				m.round(t.Context(), m.withBuckets(), pace{pause: between(900*time.Millisecond, 1500*time.Millisecond)}, events["stall"])
				for name, event := range events { // in random order
					m.round(t.Context(), m.some(3), anyPace(), event)
					t.Logf("%s from %d to %d", name, begin, m.now())
					begin = m.now()
					if name == "kill" || name == "SIGTERM" {
						starts++
					}
					if rounds--; rounds == 0 {
						break
					}
				}
			}
			factor := 1
			if fallback == "local" {
				factor += len(m.services) + starts
			}
			m.verify(t, factor)
			t.Logf("%d requests answered, %d without an answer", m.requests.Load(), m.failed.Load())
		})
	}
}
