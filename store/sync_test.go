//go:build more

package store

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// If the reply to a sync is truncated or invalid, no hits are lost: all are charged, by this run or
// the next.
func TestUnreadableRepliesToSync(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"truncated":  "*5\r\n:%d\r\n:0\r\n:0\r\n:1\r\n:3\r\n",
		"no number":  "*7\r\n:%d\r\n:0\r\n:0\r\n:1\r\n:3\r\n:1\r\n*0\r\n",
		"no counter": "*3\r\n:%d\r\n:0\r\n:0\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			h := newHostileServer(t, func(w io.Writer, command []string) bool {
				now := time.Now().Unix()
				if !slices.Contains(command, "f") || strings.Contains(command[3], "probe") { // a probe
					return replyWith(fmt.Sprintf("*3\r\n:%d\r\n:0\r\n:0\r\n", now))(w)
				}
				if runs.Add(1) == 1 {
					return replyWith(fmt.Sprintf(reply, now))(w)
				}
				counters := (len(command) - 5) / 5 // each has a key and four numbers
				return replyWith(fmt.Sprintf("*%d\r\n:%d\r\n:0\r\n:0\r\n"+strings.Repeat(":1\r\n:3\r\n", counters), 3+2*counters, now))(w)
			})
			o := &recorder{}
			s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: h.addr}, Observer: o})
			storetest.Eventually(t, "up", s.Up)
			s.addHits(t, oneHit(1, hugeFixedWindow), 3)
			s.addHits(t, oneHit(2, hugeFixedWindow), 3)
			s.main.shardOf(0).requestSync()
			storetest.Eventually(t, "all hits are synced", func() bool { return o.syncedHits() == 6 && s.unsyncedCounters() == 0 })
			if o.dropped != 0 {
				t.Errorf("%d hits were dropped", o.dropped)
			}
		})
	}
}

// A panic of an Exceeded callback has no effect on others: all hits are charged, and the shard
// stays available.
func TestPanicDuringSync(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	o := &recorder{}
	var panics atomic.Int64
	s := runStore(t, Options{Server: serverAt(srv), Observer: o, Panicked: func(any) { panics.Add(1) }})
	storetest.Eventually(t, "up", s.Up)
	p := &limiter.Policy{Algorithm: limiter.FixedWindow, Limit: 5, Window: limiter.MaxWindow}
	for n := range uint64(3) {
		s.addHits(t, oneHit(n, p), 9)
	}
	s.main.ledger.mu.Lock()
	for _, d := range s.main.ledger.entries {
		d.Exceeded = func(uint64) { panic("a bug") }
	}
	s.main.ledger.mu.Unlock()
	s.main.shardOf(0).requestSync()
	storetest.Eventually(t, "all hits are synced", func() bool { return o.syncedHits() == 27 && s.unsyncedCounters() == 0 })
	storetest.Eventually(t, "the panics are counted", func() bool { return panics.Load() == 3 })
	if !s.Up() || len(o.failed) != 0 {
		t.Errorf("up %v, failures %v", s.Up(), o.failed)
	}
}

// steadyTraffic makes a request whenever hits are synced, while the fallback decides.
type steadyTraffic struct {
	recorder
	store atomic.Pointer[Store]
	runs  atomic.Int64
}

func (o *steadyTraffic) Synced(uint64) {
	o.runs.Add(1)
	if s := o.store.Load(); !s.main.shardOf(0).accepts() {
		var c caller
		_ = c.decide(s, oneHit(1, hugeFixedWindow))
	}
}

// A recovering shard is used although new hits arrive during each round trip of the sync.
func TestSyncEndsUnderTraffic(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	r := newRelay(t, srv.Addr, nil, false)
	o := &steadyTraffic{}
	s := runStore(t, Options{Server: redis.Server{Network: "tcp", Address: r.addr}, Observer: o, Fallback: Local, Timeout: time.Minute, DialTimeout: time.Minute})
	o.store.Store(s)
	storetest.Eventually(t, "up", s.Up)
	r.setBlocked(true)
	storetest.Eventually(t, "unavailable", func() bool { return !s.Up() })
	var c caller
	_ = c.decide(s, oneHit(1, hugeFixedWindow))
	r.setBlocked(false)
	storetest.Eventually(t, "up", s.Up)
	storetest.Eventually(t, "all hits are synced", func() bool { return s.unsyncedCounters() == 0 })
	if n := o.runs.Load(); n == 0 || n > 3 {
		t.Errorf("hits were synced %d times, want one to three times: of the outage, and of the first time", n)
	}
}
