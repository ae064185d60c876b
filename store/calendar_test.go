//go:build more

package store

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// calendarPolicies returns policies of the algorithms that support calendars.
func calendarPolicies(c *limiter.Calendar) (all []*limiter.Policy) {
	p := limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 3, Window: 24 * time.Hour, Calendar: c}
	fixed := p
	all = append(all, &fixed)
	for _, k := range []uint32{1, 7, 60} {
		ring := p
		ring.Algorithm, ring.SubWindows = limiter.SlidingWindow, k
		all = append(all, &ring)
	}
	return all
}

// decideInBoth decides a batch on the named counter in a table and by the script of a server.
func decideInBoth(t *testing.T, conn *redis.Conn, table *limiter.Table, name [][]byte, at limiter.Time, inTable, stored *limiter.Batch) {
	t.Helper()
	run, call := &script.Run{}, &script.Call{}
	run.Clear(at)
	call.Encode(at, stored, name, 0)
	run.Add(call)
	if script.DecideScript.Run(conn, run); run.Err == nil {
		run.Read()
	}
	if run.Err != nil || call.Err != nil {
		t.Fatal(run.Err, call.Err)
	}
	table.Decide(at, inTable)
	stored.Stored().Decide(at, call.Found)
}

// The store decides as a table does at each edge of a calendar's windows and sub-windows, to the
// nanosecond, and after a clock that was a year ahead is set back.
func TestCalendarEdges(t *testing.T) {
	t.Parallel()
	conn := newClient(t, storetest.Start(t))
	for i, c := range calendars() {
		for j, p := range calendarPolicies(c) {
			table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
			must.OK(t, err)
			name := [][]byte{strconv.AppendInt([]byte("edges"), int64(10*i+j), 10)}
			var times []limiter.Time
			at := limiter.Time(time.Date(2031, 2, 25, 0, 0, 0, 0, time.UTC).UnixNano())
			for range 16 {
				start, end := c.Window(at)
				parts := int64(max(1, p.SubWindows))
				for part := range parts {
					edge := start + limiter.Time(int64(end-start)/int64(time.Second)*part/parts*int64(time.Second))
					times = append(times, edge-1, edge, edge+limiter.Time(time.Second)-1)
				}
				at = end
			}
			if p.Algorithm == limiter.SlidingWindow { // a table never leaves a fixed window for an older window
				times = append(times, at+limiter.Time(300*24*time.Hour), at, at+limiter.Time(800*24*time.Hour), at, at)
			}
			for step, at := range times {
				charge := limiter.Charge{ID: oneHit(uint64(step), p).ID, Policy: p, Hits: uint64(step % 2)}
				if step >= len(times)-5 {
					charge.Hits = 1
				}
				charge.ID.Hi, charge.ID.Lo = 1<<40, 1<<40
				inTable, stored := limiter.Batch{Charges: []limiter.Charge{charge}}, limiter.Batch{Charges: []limiter.Charge{charge}}
				decideInBoth(t, conn, table, name, at, &inTable, &stored)
				if diff := cmp.Diff(inTable.Decisions, stored.Decisions); diff != "" {
					t.Fatalf("%v, %d parts, at %v: table -, store +:\n%s", c.Zone(), p.SubWindows, time.Unix(0, int64(at)).In(c.Zone()), diff)
				}
			}
		}
	}
}

// expiryOfKey is a script that returns EXPIRETIME, which Redis 6.2 lacks.
const expiryOfKey = `local now = redis.call('TIME')
return now[1] + (now[2] / 1000 + redis.call('PTTL', KEYS[1])) / 1000 + 0.5`

// The key of a fixed window ends with the window's start, and expires a second after the window.
// The key of a sliding window expires at the end of the next window.
func TestKeysOfACalendar(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	conn := newClient(t, srv)
	now := limiter.Time(time.Date(2031, 2, 25, 9, 0, 0, 0, time.UTC).UnixNano()) // its windows do not end during the test
	for i, c := range calendars() {
		for j, p := range calendarPolicies(c) {
			start, end := c.Window(now)
			_, next := c.Window(end)
			key := "keys" + strconv.Itoa(10*i+j)
			run, call := &script.Run{}, &script.Call{}
			run.Clear(now)
			call.Encode(now, &limiter.Batch{Charges: []limiter.Charge{oneHit(1, p)}}, [][]byte{[]byte(key)}, 0)
			run.Add(call)
			script.DecideScript.Run(conn, run)
			want := next
			if p.Algorithm == limiter.FixedWindow {
				key, want = key+strconv.FormatInt(int64(start)/int64(time.Second), 10), end
			}
			at, err := strconv.ParseInt(srv.Must("EVAL", expiryOfKey, "1", key), 10, 64)
			if late := at - int64(want)/int64(time.Second); err != nil || late < 0 || late > 2 {
				t.Errorf("%s of %v expires %d s after %v, %v; want within 2 s", key, c.Zone(), late, time.Unix(0, int64(want)), err)
			}
		}
	}
}
