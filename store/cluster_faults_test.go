//go:build more

package store

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// traffic sends requests on counters in many slots, and counts the admitted hits.
type traffic struct {
	s        *Store
	admitted [40]atomic.Int64
	stop     atomic.Bool
	all      sync.WaitGroup
}

func newTraffic(tb testing.TB, s *Store) *traffic {
	tb.Helper()
	l := &traffic{s: s}
	for n := range 4 {
		l.all.Go(func() {
			var c caller
			for i := n; !l.stop.Load(); i++ {
				var charges []limiter.Charge
				for k := range 1 + i%2 {
					charges = append(charges, oneHit(uint64((i*7+k)%len(l.admitted)+1), hugeFixedWindow))
				}
				if err := c.decide(s, charges...); err != nil {
					tb.Errorf("decide = %v", err)
				}
				for k := range charges {
					if d := &c.b.Decisions[k]; !d.Over && !d.Denied {
						l.admitted[charges[k].ID.Lo-1].Add(1)
					}
				}
			}
		})
	}
	tb.Cleanup(l.stopAndWait)
	return l
}

func (l *traffic) stopAndWait() {
	l.stop.Store(true)
	l.all.Wait()
}

// totalAdmitted returns the number of admitted hits on all counters.
func (l *traffic) totalAdmitted() (n int64) {
	for i := range l.admitted {
		n += l.admitted[i].Load()
	}
	return n
}

// compareCounts compares the counts that s reads in the store with the admitted hits. A hit that was
// decided late may count once more.
func (l *traffic) compareCounts(tb testing.TB, s *Store, late int) {
	tb.Helper()
	var c caller
	over := 0
	for n := range l.admitted {
		peek := oneHit(uint64(n+1), hugeFixedWindow)
		peek.Hits = 0
		must.OK(tb, c.decide(s, peek))
		got, want := int(c.b.Decisions[0].Before), int(l.admitted[n].Load())
		if got < want {
			tb.Errorf("counter %d has %d hits, fewer than the %d that were admitted", n+1, got, want)
		}
		over += got - want
	}
	if over > late {
		tb.Errorf("the store has %d hits more than were admitted, want at most %d, the number of late replies", over, late)
	}
}

// waitForHits waits until further hits have been admitted on every counter.
func (l *traffic) waitForHits(tb testing.TB) {
	tb.Helper()
	for i := range l.admitted {
		before := l.admitted[i].Load()
		storetest.Eventually(tb, "further hits on a counter", func() bool { return l.admitted[i].Load() > before })
	}
}

// While slots move to nodes with and without slots, the store decides, and no hit is lost or
// counted twice.
func TestClusterSlotsMove(t *testing.T) {
	t.Parallel()
	all := storetest.StartCluster(t, 3, false)
	o := &recorder{}
	s := runStore(t, Options{Server: nodes(all), Observer: o, Fallback: Deny, Timeout: time.Minute, DialTimeout: time.Minute})
	storetest.Eventually(t, "up", s.Up)
	l := newTraffic(t, s)
	l.waitForHits(t)
	all = append(all, storetest.JoinCluster(t, all))
	owner := func(slot uint16) *storetest.Server { // by the distribution of StartCluster
		for i, n := range all[:3] {
			if int(slot) < (i+1)*redis.Slots/3 {
				return n
			}
		}
		return nil
	}
	moved := 0
	for n := 1; n <= len(l.admitted); n += 3 {
		slot := redis.SlotOf(nameOf("s1", &limiter.Charge{ID: oneHit(uint64(n), hugeFixedWindow).ID}))
		from, to := owner(slot), all[n%4]
		if from == to {
			to = all[3]
		}
		storetest.MoveSlot(from, to, slot, func() {
			before := l.admitted[n-1].Load()
			storetest.Eventually(t, "hits on the counter while its slot moves", func() bool { return l.admitted[n-1].Load() > before+2 })
		})
		moved++
	}
	l.waitForHits(t)
	l.stopAndWait()
	o.mu.Lock()
	late := o.decided[byFallback]
	t.Logf("%d slots moved; decided %v, failed %v", moved, o.decided, o.failed)
	if late*100 > o.decided[byStore] || o.diverged > 0 || o.failed[redis.Cluster] == 0 {
		t.Errorf("decided %v, want at most 1 %% by the fallback; failed %v, %d replies diverged", o.decided, o.failed, o.diverged)
	}
	o.mu.Unlock()
	var c caller
	for n := range l.admitted {
		peek := oneHit(uint64(n+1), hugeFixedWindow)
		peek.Hits = 0
		must.OK(t, c.decide(s, peek))
		got, want := c.b.Decisions[0].Before, uint64(l.admitted[n].Load())
		if got < want || got > want && late == 0 {
			t.Errorf("counter %d has %d hits, want the %d that were admitted", n+1, got, want)
		}
	}
}

// unavailableLog records the shards that are unavailable according to the log.
type unavailableLog struct {
	mu          sync.Mutex
	unavailable map[string]bool
	ever        int
}

func (a *unavailableLog) log() Log {
	set := func(shard string, unavailable bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.unavailable == nil {
			a.unavailable = map[string]bool{}
		}
		if delete(a.unavailable, shard); unavailable {
			a.unavailable[shard] = true
			a.ever++
		}
	}
	return Log{
		Unavailable: func(shard string, _ redis.Kind, _ error, _ string) { set(shard, true) },
		Recovered:   func(shard string, _ time.Duration, _ Synced) { set(shard, false) },
		Replaced:    func(shard string) { set(shard, false) },
	}
}

// allRecovered reports whether shards were unavailable, and none is now.
func (a *unavailableLog) allRecovered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ever > 0 && len(a.unavailable) == 0
}

// If no node of a cluster answers at the start, the cluster is logged as unavailable, and later as
// recovered.
func TestClusterRecovers(t *testing.T) {
	t.Parallel()
	r, log := newRelay(t, storetest.StartCluster(t, 3, false)[0].Addr, nil, false), &unavailableLog{}
	r.setBlocked(true)
	s := runStore(t, Options{Server: redis.Server{Nodes: []string{r.addr}}, Log: log.log(), Fallback: Deny})
	storetest.Eventually(t, "the cluster is unavailable under a name of its own", func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		return log.unavailable["cluster of "+r.addr]
	})
	r.setBlocked(false)
	storetest.Eventually(t, "up", s.Up)
	storetest.Eventually(t, "all shards are logged as recovered", log.allRecovered)
}

// If a primary stops or dies, only its own slots are unavailable, until it continues or its replica
// takes over.
func TestClusterPrimaryFails(t *testing.T) {
	t.Parallel()
	all := storetest.StartCluster(t, 3, true)
	o, log := &recorder{}, &unavailableLog{}
	s := runStore(t, Options{Server: nodes(all), Observer: o, Log: log.log(), Fallback: Deny, Timeout: 100 * time.Millisecond})
	storetest.Eventually(t, "up", s.Up)
	l := newTraffic(t, s)
	l.waitForHits(t)
	for _, failure := range []struct {
		name   string
		fail   func()
		repair func()
	}{
		{"stopped", all[1].Stop, all[1].Continue},
		{"killed", all[1].Kill, func() { storetest.EnableFailover(slices.Delete(slices.Clone(all), 1, 2)) }},
	} {
		failure.fail()
		storetest.Eventually(t, failure.name+": unavailable", func() bool { return !s.Up() })
		before := l.totalAdmitted()
		storetest.Eventually(t, failure.name+": the other shards decide", func() bool { return l.totalAdmitted() > before+100 })
		failure.repair()
		storetest.Eventually(t, failure.name+": up again", s.Up)
		l.waitForHits(t)
	}
	if sh := s.main.shardOf(redis.Slots / 2); sh.name != all[4].Addr {
		t.Errorf("its slots are at %s, want them at its replica, %s", sh.name, all[4].Addr)
	}
	l.stopAndWait()
	storetest.Eventually(t, "the shard of the killed primary has ended", func() bool {
		s.main.mu.Lock()
		defer s.main.mu.Unlock()
		return s.main.shards[all[1].Addr] == nil
	})
	storetest.Eventually(t, "all shards are logged as recovered", func() bool { return log.allRecovered() })
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("decided %v, failed %v", o.decided, o.failed)
	if o.diverged > 0 {
		t.Errorf("%d replies diverged", o.diverged)
	}
}
