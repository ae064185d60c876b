package limiter

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

const year = 365 * 24 * time.Hour

// aheadPolicies returns policies of each algorithm, with windows shorter and longer than an hour.
func aheadPolicies() (all []Policy) {
	for _, w := range []time.Duration{time.Second, 5 * time.Hour, 30 * 24 * time.Hour} {
		all = append(all,
			Policy{Algorithm: FixedWindow, Limit: 4, Window: w},
			Policy{Algorithm: FixedWindow, Limit: 4, Window: w, CountRefused: true},
			Policy{Algorithm: SlidingWindow, Limit: 4, Window: w, SubWindows: 10},
			Policy{Algorithm: SlidingWindow, Limit: 4, Window: w, SubWindows: 1, CountRefused: true},
			Policy{Algorithm: SlidingLog, Limit: 4, Window: w},
			Policy{Algorithm: SlidingLog, Limit: 4, Window: w, CountRefused: true},
			Policy{Algorithm: TokenBucket, Limit: 4, Window: w, Burst: 4},
			Policy{Algorithm: TokenBucket, Limit: 4, Window: w, Burst: 9, CountRefused: true},
			Policy{Algorithm: LeakyBucket, Limit: 4, Window: w, Slack: 3, MaxWait: 20 * time.Second, MaxWaiting: 2},
			Policy{Algorithm: Concurrency, Limit: 4, Window: w},
		)
	}
	all = append(all, Policy{Algorithm: TokenBucket, Limit: math.MaxUint32, Window: time.Second, Burst: 4})
	for _, c := range calendarPolicies() {
		all = append(all, c...)
	}
	return all
}

// maxLife returns the maximum life of a counter of p that is charged now.
func maxLife(p *Policy) time.Duration {
	switch k := p.Bucket(); {
	case p.Calendar != nil: // calendar windows differ in length
		return p.Window + p.Window/time.Duration(max(1, p.SubWindows)) + 3*24*time.Hour
	case p.Algorithm == TokenBucket || p.Algorithm == LeakyBucket:
		return k.Duration(k.Full + k.Debt)
	case p.Algorithm == SlidingWindow:
		return p.Window + p.Window/time.Duration(p.SubWindows)
	default:
		return p.Window
	}
}

// TestClockThatWasAhead sets the clock ahead for a moment and back, in the midst of other charges.
// Every decision equals that of an oracle, and no counter lasts longer than its own time plus an
// hour.
func TestClockThatWasAhead(t *testing.T) {
	const base = Time(1_000_000_000) * sec
	for _, p := range aheadPolicies() {
		for _, jump := range []time.Duration{
			59 * time.Minute, 61 * time.Minute, p.Window + 59*time.Minute, p.Window + 61*time.Minute, 2 * year, 9 * year, 30 * year, 100 * year,
		} {
			p.Prepare()
			tab, oracle := newTable(t, 64<<10), newOracle(p.Algorithm)
			decide := inTable(tab)
			play := func(step string, now Time, hits uint64) Decision {
				t.Helper()
				c := Charge{ID: counterID(1), Policy: &p, Hits: hits}
				got, want := decide(now, c, time.Minute), oracle.decide(now, c, time.Minute)
				if want.Denied = want.Over; got != want {
					t.Fatalf("%+v, %v ahead, %s:\n got %+v\nwant %+v", p, jump, step, got, want)
				}
				return got
			}
			play("before", base, 1)
			for n := range 20 {
				play(fmt.Sprint("ahead, hit ", n), base+Time(jump)+Time(n), 1)
			}
			first := play("back", base+1, 1)
			if left := maxLife(&p) + time.Hour; first.Over && (jump >= 2*year || max(first.RetryAfter, first.Reset) > left) {
				t.Errorf("%+v, %v ahead: denied after the clock was set back: %+v", p, jump, first)
			}
			for n, now := range []Time{base + 2, base + Time(20*time.Minute), base + Time(10*time.Minute), base + Time(3*time.Hour), base + Time(100*time.Minute), base + Time(maxLife(&p)), base + Time(2*maxLife(&p)), base + Time(2*time.Hour)} {
				play(fmt.Sprint("peek ", n), now, 0)
				play(fmt.Sprint("hit ", n), now, 1)
				play(fmt.Sprint("hits ", n), now, 2)
			}
		}
	}
}

// TestSnapshotOfAClockThatWasAhead checks that a table saved while the clock was ahead decides like
// the original.
func TestSnapshotOfAClockThatWasAhead(t *testing.T) {
	const base = Time(1_000_000_000) * sec
	for _, p := range aheadPolicies() {
		if p.Algorithm == Concurrency {
			continue // leases are not restored
		}
		for _, jump := range []Time{Time(59 * time.Minute), Time(61 * time.Minute), Time(2 * year), Time(100 * year)} {
			tab := newTable(t, 64<<10)
			for range 5 {
				inTable(tab)(base+jump, Charge{ID: counterID(1), Policy: &p, Hits: 1}, time.Minute)
			}
			var b bytes.Buffer
			if _, err := tab.Save(&b, base+jump); err != nil {
				t.Fatal(err)
			}
			loaded, _, err := Load(&b, Options{Bytes: 64 << 10})
			must.OK(t, err)
			for now := base; now < base+Time(2*time.Hour); now += Time(50 * time.Minute) {
				c := Charge{ID: counterID(1), Policy: &p, Hits: 1}
				if got, want := inTable(loaded)(now, c, time.Minute), inTable(tab)(now, c, time.Minute); got != want {
					t.Errorf("%+v, %v ahead, at %v:\nloaded %+v\n saved %+v", p, time.Duration(jump), time.Duration(now-base), got, want)
				}
			}
		}
	}
}

// TestPenaltyOfAClockThatWasAhead checks that a penalty lasts at most an hour longer than its step.
func TestPenaltyOfAClockThatWasAhead(t *testing.T) {
	const base = Time(1_000_000_000) * sec
	penalised := func(steps ...time.Duration) *Policy {
		p := &Policy{Algorithm: TokenBucket, Limit: 60, Window: time.Minute, Burst: 1, Penalty: NewPenalty(steps...)}
		p.Prepare()
		return p
	}
	p := penalised(2*time.Minute, 5*time.Hour)
	hit := func(tab *Table, p *Policy, now Time, hits uint64) Decision {
		return decide(tab, now, Charge{ID: counterID(1), Policy: p, Hits: hits}).Decisions[0]
	}
	for _, jump := range []time.Duration{59 * time.Minute, 61 * time.Minute, p.Window + 59*time.Minute, p.Window + 61*time.Minute, 2 * year, 9 * year, 100 * year} {
		for level := uint8(1); level < 3; level++ {
			tab, ahead := newTable(t, 64<<10), base+Time(jump)
			for n := range level {
				for hit(tab, p, ahead, 2).Penalty <= n {
					ahead += Time(time.Second)
				}
				if n+1 < level {
					ahead += Time(2*time.Minute) + 1
				}
			}
			back := ahead - Time(jump)
			d := hit(tab, p, back, 1)
			if want := jump <= time.Hour; d.Over != want || want && d.Penalty != level {
				t.Errorf("%v ahead, step %d: %+v, want denied: %v", jump, level, d, want)
			}
			if d = hit(tab, p, back, 2); jump > time.Hour && (!d.PenaltyStarted || d.Penalty != 1) {
				t.Errorf("%v ahead, step %d: the next penalty begins with %+v", jump, level, d)
			}
		}
	}
}

// TestReservationsOfAClockThatWasAhead checks that a reservation lasts at most an hour longer than
// its life.
func TestReservationsOfAClockThatWasAhead(t *testing.T) {
	const base = Time(1_000_000_000) * sec
	for _, life := range []time.Duration{time.Minute, 20 * time.Hour} {
		for _, jump := range []time.Duration{59 * time.Minute, 61 * time.Minute, life + 59*time.Minute, life + 61*time.Minute, 2 * year, 9 * year, 100 * year} {
			p := &Policy{Algorithm: TokenBucket, Limit: 1000, Window: time.Second, Burst: 1000, Reserve: NewReserve(9, life, true)}
			tab := newTable(t, 64<<10)
			held := func(now Time) uint64 {
				return decide(tab, now, Charge{ID: counterID(1), Policy: p, Reserve: true}).Decisions[0].Before
			}
			decide(tab, base, Charge{ID: counterID(1), Policy: p, Hits: 100, Reserve: true})
			ahead := decide(tab, base+Time(jump), Charge{ID: counterID(1), Policy: p, Hits: 10, Reserve: true})
			want := uint64(0)
			if jump < life {
				want += 100
			}
			if jump <= time.Hour {
				want += 10
			}
			if got := held(base + 1); got != want {
				t.Errorf("%v, %v ahead: %d hits are held, want %d", life, jump, got, want)
			}
			released := decide(tab, base+1, Charge{ID: counterID(1), Policy: p, Hits: ahead.Lease(0), Refund: true}).Decisions[0].Charged
			if want := map[bool]uint64{true: 10}[jump <= time.Hour]; released != want {
				t.Errorf("%v, %v ahead: the lease released %d, want %d", life, jump, released, want)
			}
		}
	}
}

// TestPermitThatBeganAheadIsFree checks that a permit that was granted too far ahead is free, and
// that earlier permits are still held.
func TestPermitThatBeganAheadIsFree(t *testing.T) {
	p, tab, id := &Policy{Algorithm: Concurrency, Limit: 3, Window: 10 * time.Hour}, newTable(t, 64<<10), counterID(1)
	p.Prepare()
	before := [2]uint64{acquirePermit(tab, benchNow, id, p), acquirePermit(tab, benchNow, id, p)}
	ahead := acquirePermit(tab, benchNow+Time(90*time.Minute), id, p)
	if d := decide(tab, benchNow+1, Charge{ID: id, Policy: p}).Decisions[0]; d.Before != 2 {
		t.Errorf("%d permits are held, want 2", d.Before)
	}
	if n := returnLease(tab, benchNow+1, id, p, ahead); n != 0 {
		t.Error("the lease of the permit that began ahead is valid")
	}
	third := acquirePermit(tab, benchNow+1, id, p)
	if third == 0 || acquirePermit(tab, benchNow+1, id, p) != 0 {
		t.Error("with two permits held, no third permit is free")
	}
	for _, lease := range append(before[:], third) {
		if returnLease(tab, benchNow+2, id, p, lease) != 1 {
			t.Errorf("the lease %d is not valid", lease)
		}
	}
}

// TestHorizonOfAClockThatWasAhead reclaims counters while the clock is ahead. After the clock was
// corrected, new counters begin at the corrected time, and late callers get the same decisions as
// before.
func TestHorizonOfAClockThatWasAhead(t *testing.T) {
	p := perMinute(1)
	for _, jump := range []Time{Time(2 * time.Hour), Time(2 * year)} {
		tab := newTable(t, MinBytes)
		fill := func(now, set Time) { // reclaims the earlier counters
			for _, id := range samePair(2 * ways) {
				id.Hi ^= uint64(set) << 32
				decide(tab, now, oneHit(id, p))
			}
		}
		fill(min1, 1)
		fill(min1+jump, 2)
		fill(min1+2*jump, 3)
		if d := decide(tab, 2*min1, oneHit(counterID(1), p)).Decisions[0]; d.Over || d.Reset > time.Minute {
			t.Errorf("%v ahead: the decision on a new counter is %+v", time.Duration(jump), d)
		}
		if h := Time(tab.horizon.Load()); h <= 2*min1+3600*sec {
			t.Fatalf("%v ahead: nothing was reclaimed: %v", time.Duration(jump), h)
		}
		tab.raiseHorizon(2*min1, 2*min1)
		if h := Time(tab.horizon.Load()); h != 2*min1 {
			t.Errorf("%v ahead: the horizon is %v after a counter was reclaimed, want now", time.Duration(jump), h)
		}
	}
}

// TestShortMonthOfAClockThatWasAhead checks that a future February starts again, although it ends
// within the nominal 30 days of a month.
func TestShortMonthOfAClockThatWasAhead(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		c := calendarOf(t, zone, 1, Months)
		february := Time(time.Date(2027, time.February, 1, 0, 0, 0, 0, c.Zone()).UnixNano())
		for _, early := range []time.Duration{59 * time.Minute, 61 * time.Minute, 30 * time.Hour, 47 * time.Hour} {
			tab, p := newTable(t, MinBytes), &Policy{Algorithm: FixedWindow, Limit: 1, Window: 30 * 24 * time.Hour, Calendar: c}
			p.Prepare()
			decide(tab, february, oneHit(counterID(1), p))
			d := decide(tab, february-Time(early), oneHit(counterID(1), p)).Decisions[0]
			if want := early <= time.Hour; d.Over != want || !want && d.Reset != early {
				t.Errorf("%s, %v before February, on a counter that was hit while the clock was ahead: %+v, want denied: %v", zone, early, d, want)
			}
		}
	}
}
