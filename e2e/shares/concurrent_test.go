//go:build more

package shares_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// event is a charge or a refund of a counter, or a call that its limit did not admit, between two times.
type event struct {
	from, to time.Duration
	hits     int
	capacity int
	undone   bool
	what     string
}

// ledger has the events of each counter of a domain.
type ledger struct {
	mu             sync.Mutex
	events, misses map[string][]event
}

// record records the answer to a request.
func (g *ledger) record(t *testing.T, d *domain, calls []call, a answer, from, to time.Duration) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range calls {
		undone := false
		add := func(into map[string][]event, l limit) {
			e := event{from, to, c.hits, l.capacity(c) - d.lost(l), undone, fmt.Sprint(calls, a)}
			into[d.counter(c, l)] = append(into[d.counter(c, l)], e)
		}
		for _, l := range c.rule.limits {
			if l.soft {
				add(g.events, l)
			}
		}
		r, limits, want := a.replies[i], c.denying(), 0
		switch choice := c.rule.choice; {
		case choice && limits[0].capacity(c) == unlimited, c.hits == 0:
		case c.hits < 0:
			add(g.events, limits[0])
		case d.together && a.over && len(calls) > 1:
			undone = true // if it was charged
			for _, l := range limits {
				add(g.events, l)
			}
		case !choice && !r.over:
			want = c.hits
			for _, l := range limits {
				add(g.events, l)
			}
		case choice:
			for _, l := range limits {
				if r.charged > 0 && l.name == r.names[0] {
					want = c.hits
					add(g.events, l)
					break
				}
				if l.capacity(c) >= c.hits {
					add(g.misses, l)
				}
			}
		}
		if c.hits >= 0 && r.charged != want {
			t.Errorf("%v -> %+v: descriptor %d is charged %d, want %d", calls, a, i, r.charged, want)
		}
	}
}

// sum returns the hits of charges that began by to, except those that were undone before from, and of
// refunds that ended by from.
func sum(events []event, from, to time.Duration) (n int) {
	for _, e := range events {
		if e.hits > 0 && e.from <= to && (!e.undone || e.to >= from) || e.hits < 0 && e.to <= from {
			n += e.hits
		}
	}
	return n
}

// TestConcurrently has 64 clients of eight domains. A limit with room is charged before later ones,
// and each counter has the hits of the answers.
func TestConcurrently(t *testing.T) {
	rounds(t, 8, 8, func(t *testing.T, s *service, all []*domain, round uint64) {
		t.Helper()
		ledgers := make([]ledger, len(all))
		for i := range ledgers {
			all[i].contended = true
			ledgers[i].events, ledgers[i].misses = map[string][]event{}, map[string][]event{}
		}
		begin := time.Now()
		var clients sync.WaitGroup
		for client := range 64 {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(round, 1000+uint64(client)))
				own := map[string]int{} // hits that this client may refund
				for range 160 {
					n := r.IntN(len(all))
					calls := all[n].randomRequest(r, false)
					first, replica := &calls[0], r.IntN(len(s.sluices))
					tenant := fmt.Sprint(n, first.rule.key, first.value)
					if n%2 == 0 { // with refunds, after which other replicas may repeat a denial for 1.1 s
						replica = n / 2 % len(s.sluices)
						if len(calls) == 1 && own[tenant] > 0 && r.IntN(3) == 0 {
							first.hits = -min(first.hits, own[tenant])
						}
					}
					from := time.Since(begin)
					a := s.ask(t, replica, client, all[n].name, calls)
					ledgers[n].record(t, all[n], calls, a, from, time.Since(begin))
					if len(calls) == 1 && slices.Contains(a.replies[0].names, "guaranteed") && rows[first.value] >= 0 && !a.over {
						own[tenant] += first.hits
					}
				}
			})
		}
		clients.Wait()
		for i, d := range all {
			g := &ledgers[i]
			for counter, misses := range g.misses {
				for _, m := range misses {
					if most := sum(g.events[counter], m.from, m.to); most+m.hits <= m.capacity {
						t.Errorf("%s, %s: not charged with at most %d of %d used: %s\n%s", d.name, counter, most, m.capacity, m.what, d.yaml())
					}
				}
			}
			for counter, events := range g.events {
				d.used[counter] = sum(events, math.MaxInt64, math.MaxInt64)
			}
			s.compareCounters(t, d, 20)
		}
	})
}

// TestFloodOfTenants has thousands of tenants, whose counters do not fit into memory.
func TestFloodOfTenants(t *testing.T) {
	var domains []*domain
	for i, algorithm := range []string{"fixed_window", "token_bucket", "sliding_log"} {
		own := limit{name: "guaranteed", algorithm: []string{"sliding_log", "fixed_window", "sliding_log"}[i], n: 100}
		similar := limit{name: "pool", algorithm: algorithm, n: 300}
		pool := similar
		pool.shared = "pool"
		domains = append(domains, &domain{name: fmt.Sprint("d", i), max: i % 2 * 2000, rules: []*rule{
			{key: "tenant", choice: true, limits: []limit{own, pool}},
			{key: "pool", limits: []limit{similar}},
			{key: "counter", limits: []limit{similar}},
		}})
	}
	s := start(t, 1, domains, "--counter-memory", "4MiB")
	var mu sync.Mutex
	pooled := map[string]int{}
	ask := func(client int, d *domain, c call) reply {
		a := s.ask(t, 0, client, d.name, []call{c})
		mu.Lock()
		defer mu.Unlock()
		if c.rule.choice && slices.Contains(a.replies[0].names, "pool") && !a.over {
			pooled[d.name] += a.replies[0].charged
		}
		return a.replies[0]
	}
	var clients sync.WaitGroup
	for client := range 64 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(client)))
			for i := range effort.Times(t, 48) {
				d := domains[i%len(domains)]
				c := call{rule: d.rules[0], value: fmt.Sprintf("a%d-%d", client, i), hits: []int{-50, 0, 100, 1, 1000}[r.IntN(5)]}
				if r.IntN(20) == 0 {
					c.rule, c.value = d.rules[r.IntN(3)], []string{"", "pool", "counter", "counter/pool", "\x00pool", "tenant", "d0", "d0\x00pool"}[r.IntN(8)]
				}
				reply := ask(client, d, c)
				if c.hits == 100 && strings.HasPrefix(c.value, "a") && !slices.Contains(reply.names, "guaranteed") {
					t.Errorf("%s: the share of the new tenant %v is not charged: %+v", d.name, c, reply)
				}
				if i%100 == 0 {
					ask(client, d, call{rule: d.rules[0], value: "greedy", hits: 101})
				}
			}
		})
	}
	clients.Wait()
	for _, d := range domains {
		for range 400 { // the rest of the pool
			ask(0, d, call{rule: d.rules[0], value: "greedy", hits: 1})
		}
		if pooled[d.name] != 300 {
			t.Errorf("%s: a pool of 300, which was used up, has admitted %d hits", d.name, pooled[d.name])
		}
	}
}
