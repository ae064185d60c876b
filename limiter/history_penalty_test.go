package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Histories with penalties take place at one instant: if clients were early and late, a client
// could be denied in a window that is over when its penalty starts, which no order of complete
// calls explains. They have no refunds: a request that read the penalty before it started may use
// hits refunded afterwards.

var historySteps = []time.Duration{2 * time.Second, 3 * time.Second}

// penalised adds penalties to a model. Its state has the level and the end of the penalty before
// the counter's.
func penalised(counter model) model {
	return func(s []int64, o op) ([]int64, answer) {
		level, end, inner := int64(0), int64(0), []int64(nil)
		if s != nil {
			level, end = s[0], s[1]
			if len(s) > 2 {
				inner = s[2:]
			}
		}
		retry := func() time.Duration {
			if o.hits > uint64(o.policy.Limit) {
				return limiter.Never
			}
			return time.Duration(end - int64(o.now))
		}
		if level > 0 && end > int64(o.now) {
			return s, answer{over: true, retry: retry()}
		}
		if end+int64(o.policy.Window) <= int64(o.now) {
			level = 0
		}
		next, a := counter(inner, o)
		if a.over && o.hits > 0 {
			level = min(level+1, int64(len(historySteps)))
			end = int64(o.now) + int64(historySteps[level-1])
			a.retry = retry()
		}
		return append([]int64{level, end}, next...), a
	}
}

// penaltyChecker compares verdicts and their durations: steps are longer than any window.
func penaltyChecker(counter model) porcupine.Model {
	m := checker(penalised(counter), false)
	m.Step = func(s, in, out any) (bool, any) {
		next, want := penalised(counter)(as[[]int64](s), as[op](in))
		got := as[answer](out)
		return got.over == want.over && (!got.over || got.retry == want.retry), next
	}
	return m
}

// penaltyPlan generates earlier calls and the calls of each client.
func penaltyPlan(r *rand.Rand, p *limiter.Policy) (before []op, plan [][]op) {
	draw := func(at time.Duration) op {
		return op{now: epoch + limiter.Time(at), hits: []uint64{0, 1, 1, 2, 3, uint64(p.Limit) + 1}[r.IntN(6)], policy: p}
	}
	at := time.Duration(0)
	for range r.IntN(6) {
		at += []time.Duration{0, time.Second, 2 * time.Second, 5 * time.Second}[r.IntN(4)]
		before = append(before, draw(at))
	}
	at += []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}[r.IntN(4)]
	for range clients {
		var part []op
		for range 3 {
			part = append(part, draw(at))
		}
		plan = append(plan, part)
	}
	return before, plan
}

// racePenalties plays a plan, and reports whether the history is linearizable.
func racePenalties(t *turn, r *rand.Rand, d decider, p *limiter.Policy, m porcupine.Model) (*recorder, bool) {
	rec := &recorder{}
	before, plan := penaltyPlan(r, p)
	rec.play(d, 0, before, func() {})
	rec.race(t, r, d, plan)
	return rec, porcupine.CheckOperations(m, rec.ops)
}

func TestHistoriesPenalty(t *testing.T) {
	for _, g := range games() {
		for _, p := range g.policies[:2] { // prepared and unprepared
			if p.Penalty = limiter.NewPenalty(historySteps...); p.Window != time.Second || p.Validate() != nil || p.CountRefused || g.mixed {
				continue // denied hits that count do so before the penalty starts
			}
			t.Run(fmt.Sprintf("%s of %d", g.name, p.Limit), func(t *testing.T) {
				r, m := newRand(t), penaltyChecker(g.model)
				for n := range histories(t) {
					if rec, ok := racePenalties(tableTurn(t, r), r, sizedTable(t, 64<<10), p, m); !ok {
						t.Fatalf("history %d is not linearizable:\n%s", n, describe(rec.ops))
					}
				}
			})
		}
	}
}

// penaltyMutant is a fixed window with a penalty, in three words.
type penaltyMutant struct {
	penaltyMistakes

	turn             *turn
	window, used     atomic.Int64
	level, sentenced atomic.Int64 // a step and its start
}

type penaltyMistakes struct {
	eachBegins  bool // each of several concurrent denials starts a penalty
	forgets     bool // resets the level at the end of the penalty
	prolongs    bool // denied hits prolong the penalty
	peeksOffend bool
}

func (m *penaltyMutant) Decide(now limiter.Time, b *limiter.Batch) {
	b.Decisions = make([]limiter.Decision, 1)
	c, d := &b.Charges[0], &b.Decisions[0]
	second := int64(time.Second)
	denies := func() bool {
		level, at := m.level.Load(), m.sentenced.Load()
		end := at
		if level > 0 {
			end += int64(historySteps[level-1])
		}
		if level == 0 || end <= int64(now) {
			return false
		}
		if m.prolongs && c.Hits > 0 {
			m.sentenced.Store(int64(now))
			end = int64(now) + int64(historySteps[level-1])
		}
		d.Over, d.RetryAfter = true, time.Duration(end-int64(now))
		return true
	}
	if m.turn.step(); denies() {
		m.penalise(c, d)
		return
	}
	m.turn.step()
	if w := floor(now, time.Second); w > m.window.Load() {
		m.window.Store(w)
		m.used.Store(0)
	}
	used := m.used.Load()
	if used+int64(c.Hits) <= int64(c.Policy.Limit) && (c.Hits > 0 || !m.peeksOffend || used < int64(c.Policy.Limit)) {
		m.used.Add(int64(c.Hits))
		return
	}
	m.turn.step()
	if !m.eachBegins && denies() {
		m.penalise(c, d)
		return
	}
	level := m.level.Load()
	if level > 0 && (m.forgets || m.sentenced.Load()+int64(historySteps[level-1])+second <= int64(now)) && m.sentenced.Load() < int64(now) {
		level = 0
	}
	level = min(level+1, 2)
	m.level.Store(level)
	m.sentenced.Store(int64(now))
	d.Over, d.RetryAfter = true, historySteps[level-1]
	m.penalise(c, d)
}

func (m *penaltyMutant) penalise(c *limiter.Charge, d *limiter.Decision) {
	if d.Denied = true; c.Hits > uint64(c.Policy.Limit) {
		d.RetryAfter = limiter.Never
	}
}

func TestPenaltyMutants(t *testing.T) {
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: time.Second, Penalty: limiter.NewPenalty(historySteps...)}
	for _, tt := range []struct {
		name   string
		mutant penaltyMistakes
		right  bool
	}{
		{name: "none", right: true},
		{name: "each denial begins one", mutant: penaltyMistakes{eachBegins: true}},
		{name: "forgets the level", mutant: penaltyMistakes{forgets: true}},
		{name: "prolongs", mutant: penaltyMistakes{prolongs: true}},
		{name: "peeks offend", mutant: penaltyMistakes{peeksOffend: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 1))
			m := penaltyChecker(fixedWindow)
			for n := range mutantHistories {
				turns := &turn{}
				rec, ok := racePenalties(turns, r, &penaltyMutant{penaltyMistakes: tt.mutant, turn: turns}, p, m)
				if !ok {
					if tt.right {
						t.Errorf("history %d of the correct version is rejected:\n%s", n, describe(rec.ops))
					}
					t.Logf("detected in history %d", n)
					return
				}
			}
			if !tt.right {
				t.Errorf("not detected in %d histories", mutantHistories)
			}
		})
	}
}
