package store

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// ringOf60 is costlier than most policies: 22 µs.
var ringOf60 = &limiter.Policy{Algorithm: limiter.SlidingWindow, Limit: 5, Window: time.Hour, SubWindows: 60}

// manyCharges returns n charges on counters with consecutive numbers from first.
func manyCharges(first uint64, n int, p *limiter.Policy, hits uint64) (charges []limiter.Charge) {
	for i := range n {
		c := oneHit(first+uint64(i), p)
		c.ID.Hi, c.ID.Lo = c.ID.Lo*0x9E3779B97F4A7C15, c.ID.Lo*0xD1B54A32D192ED03 // tables rely on hashes
		c.Hits, c.Group = hits, int32(i)
		charges = append(charges, c)
	}
	return charges
}

// newIdleShard returns a shard that accepts requests, and whose senders do not run.
func newIdleShard(t *testing.T) *shard {
	t.Helper()
	s := newStore(t, Options{Server: redis.Server{Network: "tcp", Address: "127.0.0.1:1"}})
	l := s.main.shardOf(0)
	l.conn = &redis.Conn{}
	t.Cleanup(func() { l.timer.Stop() })
	return l
}

func enqueueRequest(l *shard, cost time.Duration, bulk bool) *request {
	a := newRequest()
	a.call.Reset()
	a.call.Cost, a.bulk, a.batch = cost, bulk, &limiter.Batch{}
	a.send(l, time.Hour)
	return a
}

// A run takes the oldest requests up to its bound. While other requests wait, parts of large
// requests get at most half of it. No request waits for more than one run of the others.
func TestRunsAreBounded(t *testing.T) {
	l := newIdleShard(t)
	var small, parts []*request
	for range 1000 {
		small = append(small, enqueueRequest(l, 5*time.Microsecond, false))
	}
	for range 20 {
		parts = append(parts, enqueueRequest(l, script.MaxPart, true))
	}
	for range 21 {
		batch, _ := l.nextBatch(0, nil)
		l.batchDone()
		total, bulk := time.Duration(0), 0
		for _, a := range batch {
			total += a.call.Cost
			next := &small
			if a.bulk {
				next, bulk = &parts, bulk+1
			}
			if (*next)[0] != a {
				t.Fatal("a request was sent before an older one")
			}
			*next = (*next)[1:]
		}
		if total > script.MaxRun || total < script.MaxRun && len(small) > 0 || bulk > 1 && len(small) > 0 {
			t.Errorf("a run has %d requests, %d of them parts of large requests, and takes %v", len(batch), bulk, total)
		}
		if len(small)+len(parts) == 0 {
			return
		}
	}
	t.Errorf("%d requests and %d parts were not sent", len(small), len(parts))
}

// Parts of a large request are not sent after the deadline.
func TestPartsAfterTheirDeadlineAreDropped(t *testing.T) {
	l := newIdleShard(t)
	dropped, kept := enqueueRequest(l, script.MaxPart, true), enqueueRequest(l, script.MaxPart, true)
	dropped.deadline = clock()
	l.mu.Lock()
	late := l.removeLateLocked(clock())
	l.mu.Unlock()
	batch, _ := l.nextBatch(0, nil)
	if len(late) != 1 || late[0] != dropped || len(batch) != 1 || batch[0] != kept {
		t.Errorf("%d requests are late and %d were sent, want one of each", len(late), len(batch))
	}
}
