package store

import (
	"cmp"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A request waits until its deadline minus the time for the reply, and at most for the timeout.
func TestDeadlines(t *testing.T) {
	o := Options{Timeout: time.Second}
	for budget, want := range map[time.Duration]time.Duration{
		0:                      time.Second, // no deadline
		1:                      0,
		2 * time.Millisecond:   time.Millisecond,
		19 * time.Millisecond:  16 * time.Millisecond,
		999 * time.Millisecond: 996 * time.Millisecond,
		time.Minute:            time.Second,
	} {
		if got := o.maxWait(budget); got != want {
			t.Errorf("with a deadline in %v a call waits %v, want %v", budget, got, want)
		}
	}
}

// A shard becomes unavailable when a request waits and the server has sent nothing for the timeout,
// but not because requests are late or a message has waited behind others.
func TestWhenAShardIsUnavailable(t *testing.T) { synctest.Test(t, testWhenAShardIsUnavailable) }

func testWhenAShardIsUnavailable(t *testing.T) {
	mine, theirs := net.Pipe()
	answered := redis.New(mine, "", time.Second)
	defer answered.Close()
	go func() { _, _ = theirs.Read(make([]byte, 100)); _, _ = io.WriteString(theirs, "+OK\r\n") }()
	_, err := answered.Query(t.Context(), redis.ShortReply, "PING")
	must.OK(t, err)
	time.Sleep(time.Millisecond)
	now := time.Now()
	waiting := func(since, until time.Duration) *request {
		return &request{queuedAt: now.Add(since), deadline: now.Add(until)}
	}
	for name, tt := range map[string]struct {
		sending          time.Duration
		conn             *redis.Conn
		queued           *request
		open             []*request
		due, unavailable time.Duration // 0 for none
	}{
		"no request waits":                   {},
		"one call's deadline":                {sending: -time.Millisecond, open: []*request{waiting(-time.Millisecond, 2*time.Millisecond)}, due: 2 * time.Millisecond, unavailable: 999 * time.Millisecond},
		"no answer":                          {sending: -time.Second, open: []*request{waiting(-time.Second, time.Hour)}, due: 0 + 1, unavailable: 0 + 1},
		"a recent answer to another message": {sending: -2 * time.Second, conn: answered, due: 999 * time.Millisecond, unavailable: 999 * time.Millisecond},
		"no request was sent":                {queued: waiting(-300*time.Millisecond, time.Hour), due: 700 * time.Millisecond, unavailable: 700 * time.Millisecond},
	} {
		l := newShard(&backend{options: &Options{Timeout: time.Second}}, name, nil)
		l.conn = cmp.Or(tt.conn, &redis.Conn{})
		if tt.sending != 0 {
			l.sendingSince[1] = now.Add(tt.sending)
		}
		if tt.queued != nil {
			l.queue = append(l.queue, tt.queued)
		}
		for _, a := range tt.open {
			l.open.push(a)
		}
		due, unavailable := l.nextDeadlineLocked()
		for what, pair := range map[string][2]time.Duration{"due": {sinceOr(due, now), tt.due}, "unavailable": {sinceOr(unavailable, now), tt.unavailable}} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %s in %v, want %v", name, what, pair[0], pair[1])
			}
		}
	}
}

// sinceOr returns at relative to now, or 1 if they are equal, or 0 if at is the zero time.
func sinceOr(at, now time.Time) time.Duration {
	switch {
	case at.IsZero():
		return 0
	case at.Equal(now):
		return 1
	default:
		return at.Sub(now)
	}
}

// Cached denials of two stores use their own clocks: the windows of the stores may differ.
func TestCachedDenialsUseTheStoresClock(t *testing.T) {
	t.Parallel()
	nowhere := redis.Server{Network: "tcp", Address: "127.0.0.1:1"} // no probe learns another offset
	s := newStore(t, Options{Server: nowhere, PerSecond: &nowhere})
	s.perSecond.offset.Store(int64(5 * time.Second)) // the second store's clock is ahead
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Second}
	now := limiter.Time(1_900_000_000_500_000_000)
	b := &limiter.Batch{Charges: []limiter.Charge{oneHit(1, p)}}
	there := now + limiter.Time(5*time.Second)
	state := limiter.State{Hits: 1, Time: p.WindowEnd(there)}
	b.Stored().MergeInto(s.mirror, there, 0, &state)
	s.denied.mark(there, &b.Charges[0])
	if !s.denyFromMemory(now, b) || !b.Denied {
		t.Error("a full counter of the second store was not denied by memory")
	}
	if s.denyFromMemory(now+limiter.Time(600*time.Millisecond), b) {
		t.Error("a hit was denied by memory in the second store's next window")
	}
}
