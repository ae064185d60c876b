//go:build more

package store

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// aheadPolicies returns policies of all counters whose names have no time.
func aheadPolicies() (all []*limiter.Policy) {
	steps := limiter.NewPenalty(2*time.Minute, 5*time.Hour)
	for _, w := range []time.Duration{time.Second, 5 * time.Hour} {
		all = append(all,
			&limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 4, Window: w, SubWindows: 10},
			&limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 4, Window: w, SubWindows: 1, CountRefused: true},
			&limiter.Policy{Algorithm: limiter.SlidingLog, Limit: 4, Window: w},
			&limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 4, Window: w, Burst: 4},
			&limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 4, Window: w, Burst: 9, CountRefused: true, Penalty: steps},
			&limiter.Policy{Algorithm: limiter.LeakyBucket, Limit: 4, Window: w, Slack: 3, MaxWait: 20 * time.Second, MaxWaiting: 2},
			&limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 4e9, Window: time.Second, Burst: 4},
			&limiter.Policy{Algorithm: limiter.Concurrency, Limit: 4, Window: w},
			&limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 4, Window: w, Burst: 4, Reserve: limiter.NewReserve(3, time.Minute, false)},
		)
	}
	for _, c := range calendars() {
		for _, p := range calendarPolicies(c) {
			if p.Algorithm != limiter.FixedWindow {
				all = append(all, p)
			}
		}
	}
	return all
}

// The store decides as a table does while its clock is ahead, after the clock was set back, and
// after a small step back.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	const base, year = limiter.Time(1_900_000_000_123_456_789), 365 * 24 * time.Hour
	srv := storetest.Start(t)
	conn := newClient(t, srv)
	for i, p := range aheadPolicies() {
		for j, jump := range []time.Duration{
			59 * time.Minute, 61 * time.Minute, p.Window + 59*time.Minute, p.Window + 61*time.Minute, 2 * year, 9 * year, 80 * year,
		} {
			table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
			must.OK(t, err)
			name := [][]byte{strconv.AppendInt([]byte("ahead"), int64(10*i+j), 10)}
			leases := grantedLeases{}
			play := func(at limiter.Time, charge limiter.Charge) {
				t.Helper()
				charge.ID.Hi, charge.ID.Lo, charge.Policy = 1<<40, 1<<40, p
				inTable, stored := limiter.Batch{Charges: []limiter.Charge{charge}}, limiter.Batch{Charges: []limiter.Charge{charge}}
				leases.setRefunds(&inTable, 0)
				leases.setRefunds(&stored, 1)
				decideInBoth(t, conn, table, name, at, &inTable, &stored)
				if diff := cmp.Diff(inTable.Decisions, stored.Decisions); diff != "" {
					t.Fatalf("%+v, %v ahead, %+v at %v: table -, store +:\n%s", *p, jump, charge, time.Duration(at-base), diff)
				}
				leases.add(t, &inTable, &stored)
			}
			hits := func(at limiter.Time, n int) {
				for range n {
					play(at, limiter.Charge{Hits: 1, Reserve: p.Reserve != nil})
				}
			}
			hits(base, 1)
			hits(base+limiter.Time(jump), 6)
			for _, after := range []time.Duration{
				1, 2, 20 * time.Minute, 10 * time.Minute, 3 * time.Hour, 100 * time.Minute, 3*time.Hour + p.Window, 2*time.Hour + p.Window,
			} {
				at := base + limiter.Time(after)
				play(at, limiter.Charge{})
				hits(at, 2)
				if p.UsesLeases() {
					play(at, limiter.Charge{Hits: 4, Refund: true}) // returns the fourth newest lease
				}
				hits(at, 1)
			}
		}
	}
}
