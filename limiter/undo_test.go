package limiter

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// delaying10ms returns a policy that delays hits for up to a second, 10 ms apart.
func delaying10ms(slack uint32) *Policy {
	return &Policy{
		Algorithm: LeakyBucket, Limit: 100, Window: time.Second, Slack: slack,
		MaxWait: time.Second, MaxWaiting: 100,
	}
}

func held(t *Table, now Time, charges ...Charge) *Batch {
	b := &Batch{Charges: charges, Budget: time.Minute}
	t.Decide(now, b)
	return b
}

// TestOwnDecisions checks that a caller may provide the memory of the decisions.
func TestOwnDecisions(t *testing.T) {
	p, tab := delaying10ms(0), newTable(t, MinBytes)
	decide(tab, 0, oneHit(counterID(1), p))
	own := make([]Decision, 1)
	b := &Batch{Charges: []Charge{oneHit(counterID(1), p)}, Decisions: own, Budget: time.Minute}
	if tab.Decide(0, b); own[0].Wait != 10*time.Millisecond {
		t.Errorf("a call behind another waits %v, want 10ms", own[0].Wait)
	}
	tab.Cancel(0, b)
	if got := held(tab, 0, oneHit(counterID(1), p)).Wait; got != 10*time.Millisecond {
		t.Errorf("a call behind a cancelled one waits %v, want 10ms", got)
	}
}

func TestCancel(t *testing.T) {
	const step = 10 * time.Millisecond
	p := delaying10ms(0)
	tab := newTable(t, MinBytes)
	id := counterID(1)
	calls := make([]*Batch, 4)
	for i := range calls {
		if calls[i] = held(tab, 0, oneHit(id, p)); calls[i].Wait != time.Duration(i)*step {
			t.Fatalf("call %d waits %v", i, calls[i].Wait)
		}
	}
	next := func(now Time) time.Duration { // returns the delay of a new call, which is then cancelled
		b := held(tab, now, oneHit(id, p))
		w := b.Wait
		tab.Cancel(now, b)
		if d := b.Decisions[0]; d.Charged != 0 || d.Wait != 0 || b.Wait != 0 {
			t.Errorf("cancelled: %+v, Wait = %v", d, b.Wait)
		}
		return w
	}
	if got := next(0); got != 4*step {
		t.Errorf("the fifth call waits %v, want %v", got, 4*step)
	}
	tab.Cancel(0, calls[0]) // a call without a delay
	if got := next(0); got != 4*step {
		t.Errorf("after the first call, which had no delay, was cancelled: the next waits %v, want %v", got, 4*step)
	}
	tab.Cancel(5*ms, calls[1]) // later start times are fixed
	if got, d := next(0), calls[1].Decisions[0]; got != 4*step || d.Charged != 1 {
		t.Errorf("after the second was cancelled: the next waits %v, want %v; decision %+v", got, 4*step, d)
	}
	tab.Cancel(5*ms, calls[3])
	if got := next(5 * ms); got != 25*time.Millisecond {
		t.Errorf("after the last was cancelled: the next waits %v, want 25ms", got)
	}
	tab.Cancel(5*ms, calls[3]) // a second time has no effect
	tab.Cancel(5*ms, calls[2])
	if got := next(5 * ms); got != 15*time.Millisecond {
		t.Errorf("after the third was also cancelled: the next waits %v, want 15ms", got)
	}
}

// TestCancelSeveral cancels several delayed charges of one call on one counter.
func TestCancelSeveral(t *testing.T) {
	p, tab := delaying10ms(1), newTable(t, MinBytes)
	one, two := counterID(1), counterID(2)
	b := held(tab, 0,
		Charge{ID: one, Policy: p, Hits: 3},
		Charge{ID: two, Policy: p, Hits: 2},
		Charge{ID: one, Policy: p, Hits: 2},
	)
	if b.Denied || b.Wait != 30*time.Millisecond {
		t.Fatalf("Denied = %v, Wait = %v: %+v", b.Denied, b.Wait, b.Decisions)
	}
	tab.Cancel(0, b)
	for i, want := range []uint64{0, 2, 0} {
		if got := b.Decisions[i].Charged; got != want {
			t.Errorf("charge %d: Charged = %d, want %d", i, got, want)
		}
	}
	for id, want := range map[identity.ID]uint64{one: 0, two: 2} {
		if got := held(tab, 0, Charge{ID: id, Policy: p}).Decisions[0].Before; got != want {
			t.Errorf("used %d, want %d", got, want)
		}
	}
}

// TestBudget checks that a call whose delay exceeds its budget is denied immediately.
func TestBudget(t *testing.T) {
	p, tab := delaying10ms(0), newTable(t, MinBytes)
	c := oneHit(counterID(1), p)
	held(tab, 0, c)
	for _, s := range []struct {
		budget time.Duration
		over   bool
	}{{0, true}, {-1, true}, {10*time.Millisecond - 1, true}, {10 * time.Millisecond, false}} {
		b := &Batch{Charges: []Charge{c}, Budget: s.budget}
		tab.Decide(0, b)
		if b.Denied != s.over || b.Wait > s.budget && !s.over {
			t.Errorf("budget %v: Denied = %v, Wait = %v", s.budget, b.Denied, b.Wait)
		}
	}
}

// TestWaitingGroups checks that a denied group has no delay, and that an admitted group has the
// longest delay of its charges.
func TestWaitingGroups(t *testing.T) {
	p, q, tab := delaying10ms(0), delaying10ms(4), newTable(t, MinBytes)
	held(tab, 0, Charge{ID: counterID(1), Policy: p, Hits: 4})
	group := []Charge{oneHit(counterID(1), p), {ID: counterID(2), Policy: q, Hits: 6}, oneHit(counterID(3), perMinute(1))}
	if b := held(tab, 0, group...); b.Denied || b.Wait != 40*time.Millisecond || b.Decisions[1].Wait != 10*time.Millisecond {
		t.Errorf("Denied = %v, Wait = %v: %+v", b.Denied, b.Wait, b.Decisions)
	}
	b := held(tab, 0, group...)
	if !b.Denied || b.Wait != 0 {
		t.Errorf("Denied = %v, Wait = %v, want an immediate denial", b.Denied, b.Wait)
	}
	for i, d := range b.Decisions {
		if d.Wait != 0 || d.Charged != 0 {
			t.Errorf("charge %d of a denied group: %+v", i, d)
		}
	}
	if got := held(tab, 0, oneHit(counterID(1), p)).Wait; got != 50*time.Millisecond {
		t.Errorf("the next call waits %v, want 50ms", got)
	}
	// Other groups of one charge are charged, but the call is not delayed.
	other := oneHit(counterID(1), p)
	other.Group = 1
	b = held(tab, 0, oneHit(counterID(3), perMinute(1)), other)
	if !b.Denied || b.Wait != 0 || b.Decisions[1].Wait != 60*time.Millisecond {
		t.Errorf("Denied = %v, Wait = %v: %+v", b.Denied, b.Wait, b.Decisions)
	}
}

// TestRollBack checks that the charges of a group that is denied later are undone with every
// algorithm, and the previous Remaining is reported; hits that drained meanwhile are not
// returned.
func TestRollBack(t *testing.T) {
	counters := map[string]Policy{
		"fixed window":   {Algorithm: FixedWindow, Limit: 10, Window: time.Second},
		"sliding window": {Algorithm: SlidingWindow, Limit: 10, Window: time.Second, SubWindows: 10},
		"sliding log":    {Algorithm: SlidingLog, Limit: 10, Window: time.Second},
		"token bucket":   {Algorithm: TokenBucket, Limit: 10, Window: time.Second, Burst: 10},
		"leaky bucket":   {Algorithm: LeakyBucket, Limit: 10, Window: time.Second, Slack: 9},
	}
	for name, p := range counters {
		t.Run(name, func(t *testing.T) {
			tab := newTable(t, 64<<10)
			c := Charge{ID: counterID(1), Policy: &p, Hits: 2}
			before := decide(tab, 0, Charge{ID: c.ID, Policy: &p, Hits: 3}).Decisions[0]
			// The quota is within its limit until the first group charges it, so the second group
			// charges c and undoes that.
			first := oneHit(counterID(3), perMinute(1))
			quota := first
			quota.Mode, quota.Group = Quota, 1
			c.Group = 1
			b := decide(tab, 0, first, c, quota)
			d := b.Decisions[1]
			if !b.Denied || !d.Denied || d.Over || d.Charged != 0 || d.Before != 3 || d.Remaining != 7 || d.Reset != before.Reset {
				t.Errorf("decision %+v, want no charge, 7 remaining and reset %v", d, before.Reset)
			}
			if got := decide(tab, 0, Charge{ID: c.ID, Policy: &p}).Decisions[0].Before; got != 3 {
				t.Errorf("used %d, want 3", got)
			}

			// Others charge between the charge and the undo.
			b = decide(tab, 0, Charge{ID: c.ID, Policy: &p, Hits: 2})
			decide(tab, 20*ms, Charge{ID: c.ID, Policy: &p, Hits: 4})
			b.Clock = func() Time { return 30 * ms }
			b.undoCharge(0, 0)
			if got := decide(tab, 30*ms, Charge{ID: c.ID, Policy: &p}).Decisions[0].Before; got != 7 {
				t.Errorf("used %d, want the 7 hits of others", got)
			}
		})
	}
}

// TestRollBackInALaterSubWindow checks that a charge of a sliding window is undone in its own
// sub-window after others began later ones, and neither their hits nor hits that have expired.
func TestRollBackInALaterSubWindow(t *testing.T) {
	const sub = 100 * ms
	p := &Policy{Algorithm: SlidingWindow, Limit: 1000, Window: time.Second, SubWindows: 10}
	for _, s := range []struct {
		others []Time // other requests, of 7 hits, after the first
		hits   uint64
		expiry Time   // when the last hits expire
		used   uint64 // in sub-window 10
	}{
		{nil, 50, 11 * sub, 7},
		{[]Time{sub}, 50, 12 * sub, 14},
		{[]Time{sub}, 100, 12 * sub, 14},
		{[]Time{0, sub, 3 * sub}, 1, 14 * sub, 28},
		{[]Time{5*sub + 1}, 100, 16 * sub, 14},
		{[]Time{0, 10 * sub}, 50, 21 * sub, 21},
	} {
		tab := newTable(t, 64<<10)
		hit := func(at Time, hits uint64) *Batch {
			return decide(tab, at, Charge{ID: counterID(1), Policy: p, Hits: hits})
		}
		hit(0, 7)
		b := hit(1, s.hits)
		for _, at := range s.others {
			hit(at, 7)
		}
		b.undoCharge(1, 0)
		if d := b.Decisions[0]; d.Charged != 0 || d.Reset != time.Duration(s.expiry-1) {
			t.Errorf("%+v: decision %+v, want no charge, and a reset after %v", s, d, time.Duration(s.expiry-1))
		}
		if got := hit(10*sub, 0).Decisions[0].Before; got != s.used {
			t.Errorf("%+v: used %d, want %d", s, got, s.used)
		}
		if got := hit(11*sub, 0).Decisions[0].Before; len(s.others) > 0 && s.others[0] == 0 && got != s.used-14 {
			t.Errorf("%+v: used %d after the first sub-window expired, want %d", s, got, s.used-14)
		}
	}
	tab := newTable(t, 64<<10)
	b := decide(tab, 0, Charge{ID: counterID(1), Policy: p, Hits: 50})
	decide(tab, 11*sub, Charge{ID: counterID(1), Policy: p, Hits: 7})
	b.undoCharge(0, 0)
	if got := decide(tab, 11*sub, Charge{ID: counterID(1), Policy: p}).Decisions[0].Before; got != 7 {
		t.Errorf("used %d after the undone sub-window expired, want 7", got)
	}
}

// TestRollBackUnchanged checks that an undone charge of a bucket leaves no trace if the bucket was not
// charged meanwhile, however late it is undone.
func TestRollBackUnchanged(t *testing.T) {
	for _, p := range []*Policy{
		{Algorithm: TokenBucket, Limit: 10, Window: time.Second, Burst: 4},
		{Algorithm: LeakyBucket, Limit: 10, Window: time.Second, Slack: 3},
	} {
		for now := 50 * ms; now <= 500*ms; now += 50 * ms {
			tab := newTable(t, MinBytes)
			decide(tab, 0, Charge{ID: counterID(1), Policy: p, Hits: 2})
			b := decide(tab, 50*ms, Charge{ID: counterID(1), Policy: p, Hits: 1}, Charge{ID: counterID(1), Policy: p, Hits: 1})
			b.Clock = func() Time { return now }
			b.undoCharge(50*ms, 1)
			b.undoCharge(50*ms, 0)
			got := decide(tab, now, Charge{ID: counterID(1), Policy: p}).Decisions[0].Reset
			if want := max(1, time.Duration(200*ms-now)); got != want {
				t.Errorf("algorithm %d, undone at %v: unused after %v, want %v", p.Algorithm, time.Duration(now), got, want)
			}
		}
	}
}

// TestRollBackDrained checks that only hits of a bucket that have not drained are returned if it was
// charged meanwhile.
func TestRollBackDrained(t *testing.T) {
	p := &Policy{Algorithm: TokenBucket, Limit: 10, Window: time.Second, Burst: 4}
	for _, s := range []struct {
		then, now Time
		used      uint64 // usage at now, after 2 hits at time 0 were undone and 4 hits were charged
	}{
		{0, 0, 2},
		{100 * ms, 100 * ms, 3}, // one hit had drained
		{200 * ms, 200 * ms, 4},
		{200 * ms, 350 * ms, 3},
	} {
		tab := newTable(t, MinBytes)
		b := decide(tab, 0, Charge{ID: counterID(1), Policy: p, Hits: 2})
		n := uint64(4)
		if s.then < 200*ms {
			n = 2 + uint64(s.then/(100*ms))
		}
		decide(tab, s.then, Charge{ID: counterID(1), Policy: p, Hits: n})
		b.Clock = func() Time { return s.now }
		b.undoCharge(0, 0)
		if got := decide(tab, s.now, Charge{ID: counterID(1), Policy: p}).Decisions[0].Before; got != s.used {
			t.Errorf("undone at %v: used %d, want %d", time.Duration(s.now), got, s.used)
		}
	}
}

// TestRollBackWaiting checks that a delayed hit is not returned if others wait behind it.
func TestRollBackWaiting(t *testing.T) {
	p, tab := delaying10ms(0), newTable(t, MinBytes)
	b := held(tab, 0, oneHit(counterID(1), p))
	other := held(tab, 0, oneHit(counterID(1), p))
	b.undoCharge(0, 0)
	if d := b.Decisions[0]; d.Charged != 1 || other.Wait != 10*time.Millisecond {
		t.Errorf("decision %+v, want it still charged", d)
	}
	if got := held(tab, 0, oneHit(counterID(1), p)).Wait; got != 20*time.Millisecond {
		t.Errorf("the next call waits %v, want 20ms", got)
	}
}

// TestWaitingIsReservedLast checks that counters with delayed hits are charged last.
func TestWaitingIsReservedLast(t *testing.T) {
	b := &Batch{}
	for i := range 20 {
		p := perMinute(1)
		if i%3 == 0 {
			p = delaying10ms(0)
		}
		b.Charges = append(b.Charges, oneHit(counterID(i), p))
	}
	b.sortMembers(0, len(b.Charges))
	for i, m := range b.members {
		if waits := b.Charges[m.index].Policy.MaxWait > 0; waits != (i >= 13) {
			t.Errorf("position %d: charges with delays: %v", i, waits)
		}
	}
}

// TestRollBackKeepsLaterHits checks that undoing a charge of a log keeps later hits of others
// and their times.
func TestRollBackKeepsLaterHits(t *testing.T) {
	p := &Policy{Algorithm: SlidingLog, Limit: 10, Window: time.Second}
	tab := newTable(t, 64<<10)
	hit := func(now Time, hits uint64) *Batch {
		return decide(tab, now, Charge{ID: counterID(1), Policy: p, Hits: hits})
	}
	hit(0, 1)
	b := hit(10*ms, 3)
	hit(20*ms, 2)
	hit(30*ms, 1)
	b.undoCharge(10*ms, 0)
	if d := b.Decisions[0]; d.Charged != 0 || d.Reset != 1020*time.Millisecond {
		t.Errorf("after the undo: %+v, want no charge, and hits until 1.03s", d)
	}
	for _, s := range []struct {
		now  Time
		used uint64
	}{{40 * ms, 4}, {1000*ms - 1, 4}, {1000 * ms, 3}, {1020*ms - 1, 3}, {1020 * ms, 1}, {1030*ms - 1, 1}, {1030 * ms, 0}} {
		if got := hit(s.now, 0).Decisions[0].Before; got != s.used {
			t.Errorf("at %v: used %d, want %d", time.Duration(s.now), got, s.used)
		}
	}
}
