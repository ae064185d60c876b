package limiter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// phases generates a plan in phases of one instant each, in which the clients call concurrently.
// Between two phases every counter expires. A phase uses only a few of many counters, so that the
// slots of the other counters are reclaimed.
func (g game) phases(r *rand.Rand, counters, live, ops int) [][][]op {
	policy := g.policies[r.IntN(len(g.policies))]
	now := epoch
	var all [][][]op
	for range 8 {
		now += limiter.Time(2*g.lifetime(policy) + time.Second)
		chosen := r.Perm(counters)[:live]
		phase := make([][]op, clients)
		for c := range phase {
			for range ops {
				phase[c] = append(phase[c], op{
					counter: chosen[r.IntN(live)], now: now, hits: 1, policy: policy, budget: time.Minute,
				})
			}
		}
		all = append(all, phase)
	}
	return all
}

// lifetime returns an upper bound of the life of a counter after its last hit.
func (g game) lifetime(p *limiter.Policy) time.Duration {
	return 2*p.Window + p.MaxWait + time.Duration(p.Burst+p.Slack+p.Limit)*p.Window/time.Duration(p.Limit)
}

func tinyTable(t *testing.T) *limiter.Table {
	t.Helper()
	return sizedTable(t, 4<<10)
}

func sizedTable(t *testing.T, bytes int64) *limiter.Table {
	t.Helper()
	tab, err := limiter.New(limiter.Options{Bytes: bytes})
	must.OK(t, err)
	return tab
}

// TestHistoriesReclaim checks that counters of one pair of blocks are exact while their slots are
// reclaimed all the time: an expired counter equals an absent one.
func TestHistoriesReclaim(t *testing.T) {
	for _, g := range games() {
		t.Run(g.name, func(t *testing.T) {
			r := newRand(t)
			check := checker(g.model, true)
			for n := range histories(t) / 4 {
				tab, rec := tinyTable(t), &recorder{}
				for _, phase := range g.phases(r, 40, 12, opsAClient) {
					rec.race(tableTurn(t, r), r, tab, phase)
				}
				if !porcupine.CheckOperations(check, rec.ops) {
					t.Fatalf("history %d is not linearizable:\n%s", n, describe(rec.ops))
				}
				if s := tab.Stats(); s.Evicted > 0 || s.Reclaimed == 0 {
					t.Fatalf("%+v, want none evicted and some reclaimed", s)
				}
			}
		})
	}
}

// TestHistoriesEvict checks that counters that have used more than others stay exact while a flood
// fills their pair of blocks.
func TestHistoriesEvict(t *testing.T) {
	const established, others = 4, 100
	tries := histories(t) / 4
	if effort.Level(t) < effort.More { // the flood makes a history of this kind ten times as long as others
		tries = histories(t) / 16
	}
	for _, g := range games() {
		t.Run(g.name, func(t *testing.T) {
			r := newRand(t)
			check := checker(g.model, true)
			for n := range tries {
				tab, rec := tinyTable(t), &recorder{}
				policy := g.policies[r.IntN(len(g.policies))]
				now := epoch + limiter.Time(r.Int64N(int64(g.span)))
				var first []op
				for c := range established {
					charge := op{counter: c, now: now, hits: 2, policy: policy}
					if first = append(first, charge); policy.UsesLeases() { // acquires one permit each time
						first = append(first, charge)
					}
				}
				rec.play(tab, 0, first, func() {})
				var plan [][]op
				for range clients - 1 {
					var part []op
					for range opsAClient {
						part = append(part, op{
							counter: r.IntN(established), now: now, hits: uint64(r.IntN(3)), policy: policy, budget: time.Minute,
						})
					}
					plan = append(plan, part)
				}
				var flood []op
				for s := range others {
					flood = append(flood, op{counter: established + s, now: now, hits: 1, policy: policy})
				}
				rec.race(tableTurn(t, r), r, tab, append(plan, flood))
				kept := rec.ops[:0]
				for _, o := range rec.ops {
					if as[op](o.Input).counter < established {
						kept = append(kept, o)
					}
				}
				if !porcupine.CheckOperations(check, kept) {
					t.Fatalf("history %d is not linearizable:\n%s", n, describe(kept))
				}
				if s := tab.Stats(); s.Evicted < others/2 {
					t.Fatalf("%+v, want many evicted", s)
				}
			}
		})
	}
}
