package limiter

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

var resetPolicies = map[string]*Policy{
	"fixed window":   {Algorithm: FixedWindow, Limit: 5, Window: time.Minute, CountRefused: true},
	"sliding window": {Algorithm: SlidingWindow, Limit: 5, Window: time.Minute, SubWindows: 10, CountRefused: true},
	"sliding log":    {Algorithm: SlidingLog, Limit: 5, Window: time.Minute, CountRefused: true},
	"token bucket":   {Algorithm: TokenBucket, Limit: 5, Window: time.Minute, Burst: 5, CountRefused: true},
	"leaky bucket":   {Algorithm: LeakyBucket, Limit: 5, Window: time.Minute, Slack: 4, CountRefused: true},
	"holding bucket": {Algorithm: LeakyBucket, Limit: 5, Window: time.Minute, Slack: 2, MaxWait: time.Minute, MaxWaiting: 2},
	"fine bucket":    {Algorithm: TokenBucket, Limit: 4_000_000_000, Window: time.Second, Burst: 5},
}

// TestResetEqualsNew compares a counter that was reset with a new one, over several sub-windows and
// beyond the limit.
func TestResetEqualsNew(t *testing.T) {
	t.Parallel()
	for name, p := range resetPolicies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := newTable(t, 64<<10)
			used, fresh := counterID(1), counterID(2)
			hit := func(now Time, id identity.ID, hits uint64) Decision {
				b := &Batch{Budget: time.Hour, Charges: []Charge{{ID: id, Policy: p, Hits: hits}}}
				table.Decide(now, b)
				return b.Decisions[0]
			}
			now := Time(time.Hour) + 1
			for _, hits := range []uint64{1, 2, 1, 1, 7} {
				hit(now, used, hits)
				now += Time(time.Second)
				if p.Algorithm == SlidingWindow {
					now += Time(6 * time.Second)
				}
			}
			before := hit(now, used, 0).Before
			if got := reset(table, now, nil, used, p); got != before {
				t.Errorf("Reset = %d, want the usage, %d", got, before)
			}
			if before == 0 && name != "fine bucket" {
				t.Error("no hits were used before the reset")
			}
			for _, hits := range []uint64{0, 3, 2, 1, 0} {
				if got, want := hit(now, used, hits), hit(now, fresh, hits); got != want {
					t.Errorf("%d hits after the reset: %+v, of a new counter %+v", hits, got, want)
				}
				now += Time(time.Second)
			}
		})
	}
}

// TestResetAndPeekTakeNoSlot resets and peeks at absent counters, which must not allocate slots.
func TestResetAndPeekTakeNoSlot(t *testing.T) {
	t.Parallel()
	for name, p := range resetPolicies {
		table := newTable(t, 64<<10)
		peek := decide(table, 1, Charge{ID: counterID(1), Policy: p}).Decisions[0]
		if peek.Over || peek.Before != 0 || peek.Charged != 0 {
			t.Errorf("%s: a peek is %+v", name, peek)
		}
		if used := reset(table, 1, nil, counterID(1), p); used != 0 {
			t.Errorf("%s: Reset = %d of an absent counter", name, used)
		}
		for sc := range table.common.sizeClasses() {
			for i := range sc.inUse() * ways {
				if sc.slotAt(i).tag.Load() != 0 {
					t.Errorf("%s: slot %d is in use", name, i)
				}
			}
		}
	}
}

// TestResetLeavesNeighbours checks that only the given counter is reset, also in a partition.
func TestResetLeavesNeighbours(t *testing.T) {
	t.Parallel()
	for name, p := range resetPolicies {
		if name == "fine bucket" {
			continue // drains immediately
		}
		table := newTable(t, 1<<20)
		partition := reserve(t, table, "s", 1000)
		charge := func(s *Partition, n int, hits uint64) Decision {
			b := &Batch{Partition: s, Charges: []Charge{{ID: counterID(n), Policy: p, Hits: hits}}}
			table.Decide(1, b)
			return b.Decisions[0]
		}
		for n := range 20 {
			charge(nil, n, 2)
			charge(partition, n, 2)
		}
		reset(table, 1, partition, counterID(3), p)
		reset(table, 1, nil, counterID(4), p)
		for n := range 20 {
			common, own := uint64(2), uint64(2)
			switch n {
			case 3:
				own = 0
			case 4:
				common = 0
			}
			if got := charge(nil, n, 0).Before; got != common {
				t.Errorf("%s: counter %d has used %d, want %d", name, n, got, common)
			}
			if got := charge(partition, n, 0).Before; got != own {
				t.Errorf("%s: counter %d of the partition has used %d, want %d", name, n, got, own)
			}
		}
	}
}

// TestResetWhileCallsWait resets a leaky bucket with delayed calls: they keep their start times,
// also if one is cancelled, and new calls do not wait behind them.
func TestResetWhileCallsWait(t *testing.T) {
	t.Parallel()
	p := &Policy{Algorithm: LeakyBucket, Limit: 10, Window: time.Second, MaxWait: time.Second, MaxWaiting: 5}
	table := newTable(t, 64<<10)
	call := func(now Time) *Batch {
		b := &Batch{Budget: time.Second, Charges: []Charge{{ID: counterID(1), Policy: p, Hits: 1}}}
		table.Decide(now, b)
		return b
	}
	const now = Time(time.Hour)
	call(now)
	second, third := call(now), call(now)
	if second.Wait != 100*time.Millisecond || third.Wait != 200*time.Millisecond {
		t.Fatalf("waits are %v and %v", second.Wait, third.Wait)
	}
	if used := reset(table, now+1, nil, counterID(1), p); used != 3 {
		t.Errorf("Reset = %d, want 3", used)
	}
	if w := call(now + 1).Wait; w != 0 {
		t.Errorf("the first call after the reset waits %v", w)
	}
	table.Cancel(now+2, third) // the reset removed its hits
	if w := call(now + 2).Wait; w != 100*time.Millisecond-1 {
		t.Errorf("the second call after the reset waits %v", w)
	}
}

// TestEndAfterReset ends requests that reserved hits before a reset: their costs are not charged,
// unless reservations after the reset have taken all their places.
func TestEndAfterReset(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, TokenBucket} {
		for _, release := range []bool{false, true} {
			p := &Policy{
				Algorithm: algorithm, Limit: 1000, Window: time.Hour, SubWindows: 10, Burst: 1000,
				Reserve: NewReserve(4, time.Minute, release),
			}
			table, now := newTable(t, 1<<20), Time(time.Hour)
			start := func(hits uint64) uint64 {
				now += Time(time.Second)
				return decide(table, now, Charge{ID: counterID(1), Policy: p, Hits: hits, Reserve: true}).Lease(0)
			}
			end := func(lease uint64, cost ...uint64) (charged uint64) {
				now += Time(time.Second)
				charges := []Charge{{ID: counterID(1), Policy: p, Hits: lease, Refund: true}}
				for _, hits := range cost {
					charges = append(charges, Charge{ID: counterID(1), Policy: p, Hits: hits, Group: 1})
				}
				b := decide(table, now, charges...)
				return b.Decisions[len(cost)].Charged
			}
			used := func() uint64 {
				return decide(table, now, Charge{ID: counterID(1), Policy: p, Reserve: true}).Decisions[0].Before
			}
			held := func() LeaseStats {
				return table.LeaseStats(now, &Batch{Charges: []Charge{{ID: counterID(1), Policy: p}}}, 0)
			}

			first, second, third := start(100), start(1), start(50)
			if n := reset(table, now, nil, counterID(1), p); n != 151 {
				t.Errorf("%d hits were used before the reset, want 151", n)
			}
			reset(table, now, nil, counterID(1), p)
			if n := used(); n != 0 || held() != (LeaseStats{}) {
				t.Errorf("after the reset %d hits are used, and there are leases: %+v", n, held())
			}
			later := start(20)
			if n := end(first, 70); n != 0 || used() != 20 {
				t.Errorf("the end of a request from before the reset charged %d hits, %d are used, want 0 and 20", n, used())
			}
			if end(second); used() != 20 {
				t.Errorf("after an end without a cost %d hits are used, want 20", used())
			}
			if n := end(later, 100); n != 100 || held() != (LeaseStats{}) {
				t.Errorf("the end of a request from after the reset charged %d hits, want 100; leases: %+v", n, held())
			}
			for n := range 4 {
				if start(10) == 0 {
					t.Fatalf("only %d of 4 requests were admitted after the reset", n)
				}
			}
			if start(1) != 0 {
				t.Error("5 requests were admitted at the same time")
			}
			before := used()
			if n := end(third, 7); n != 7 || used() != before+7 {
				t.Errorf("an end charged %d hits after its place was taken, want 7", n)
			}
		}
	}
}

// TestResetFindsALogOfAnotherSize resets a log after its limit has changed.
func TestResetFindsALogOfAnotherSize(t *testing.T) {
	t.Parallel()
	small := &Policy{Algorithm: SlidingLog, Limit: 4, Window: time.Minute}
	large := &Policy{Algorithm: SlidingLog, Limit: 40, Window: time.Minute}
	table := newTable(t, 64<<10)
	decide(table, 1, Charge{ID: counterID(1), Policy: small, Hits: 4})
	if used := reset(table, 1, nil, counterID(1), large); used != 4 {
		t.Errorf("Reset = %d, want 4", used)
	}
	if d := decide(table, 1, Charge{ID: counterID(1), Policy: large, Hits: 40}).Decisions[0]; d.Over || d.Remaining != 0 {
		t.Errorf("40 hits after the reset: %+v", d)
	}
}

func reset(t *Table, now Time, in *Partition, id identity.ID, p *Policy) uint64 {
	return t.Reset(now, &Batch{Charges: []Charge{{ID: id, Policy: p}}, Partition: in}, 0)
}

func TestResetAllocatesNothing(t *testing.T) {
	for name, p := range resetPolicies {
		table := newTable(t, 64<<10)
		now, b := Time(time.Hour), &Batch{Charges: []Charge{{ID: counterID(1), Policy: p, Hits: 1}}}
		if n := must.AllocsPerRun(100, func() {
			now++
			table.Decide(now, b)
			table.Reset(now, b, 0)
		}); n != 0 {
			t.Errorf("%s: a reset allocates %v times", name, n)
		}
	}
}
