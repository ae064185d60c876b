package store

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
)

// The parts of a part of a large request are also bulk requests, and do not delay small requests.
func TestLargeRequestOnAForeignKey(t *testing.T) {
	t.Parallel()
	s := newStore(t, Options{Server: redis.Server{Network: "tcp", Address: "127.0.0.1:1"}})
	l := s.main.shardOf(0)
	l.connecting = true // requests are queued, but not sent
	batch := limiter.Batch{Charges: []limiter.Charge{oneHit(1, hugeBucket), oneHit(2, hugeBucket)}}
	a := newRequest()
	a.call.Encode(1, &batch, [][]byte{[]byte("a"), []byte("b")}, time.Minute)
	a.now, a.batch, a.waiter, a.bulk, a.deadline = 1, &batch, discard{}, true, clock().Add(time.Hour)
	if !l.decidePerCounter(&batchRun{}, a) {
		t.Fatal("the request is not decided in parts")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) != 0 || len(l.bulk) != len(batch.Charges) {
		t.Errorf("%d parts are queued among small requests and %d among bulk requests, want all %d among bulk requests", len(l.queue), len(l.bulk), len(batch.Charges))
	}
}

// If the fallback decided a part after a panic among the part's own parts, and another part denies
// the request, none of its hits are synced.
func TestPanicAmongPartsOfAPart(t *testing.T) {
	t.Parallel()
	nowhere := redis.Server{Network: "tcp", Address: "127.0.0.1:1"}
	o := &panicsOnce{}
	s := newStore(t, Options{Server: nowhere, PerSecond: &nowhere, Observer: o, Panicked: func(any) {}})
	now := limiter.Time(time.Now().UnixNano())
	batch := limiter.Batch{Charges: []limiter.Charge{oneHit(1, hugeFixedWindow), oneHit(2, hugeFixedWindow), oneHit(3, &limiter.Policy{Algorithm: limiter.FixedWindow, Window: time.Second})}}
	request := s.split(now, &batch, [][]byte{[]byte("a"), []byte("b"), []byte("c")}, false)
	w := &caller{decided: make(chan error, 1)}
	request.setWaiter(w)
	apart, denied := request.parts[0], request.parts[1]
	denied.Decided(s.fallBack(now, &denied.batch))
	counters := s.split(now, &apart.batch, apart.names, true)
	counters.setWaiter(apart)
	o.armed.Store(true)
	parts := counters.parts
	for _, p := range parts {
		newTable(t).Decide(now, &p.batch)
		p.keepRequest(newRequest(), now)
		p.Decided(nil)
	}
	if err := <-w.decided; err != nil || !batch.Denied || o.armed.Load() {
		t.Fatalf("decided %+v, %v after a panic, want a denial", batch.Decisions, err)
	}
	s.main.ledger.mu.Lock()
	defer s.main.ledger.mu.Unlock()
	for name, d := range s.main.ledger.entries {
		if d.Hits > 0 {
			t.Errorf("%s has %d unsynced hits of a denied request", name, d.Hits)
		}
	}
}

// panicsOnce is an observer that panics at the store's first decision.
type panicsOnce struct {
	recorder
	armed atomic.Bool
}

func (o *panicsOnce) Decided(by string, charges int) {
	if by == byStore && o.armed.CompareAndSwap(true, false) {
		panic("a bug")
	}
	o.recorder.Decided(by, charges)
}

// failedPanics is an observer that panics at each failure.
type failedPanics struct{ recorder }

func (*failedPanics) Failed(string) { panic("a bug") }

// A request on a foreign key is decided although the observer panics.
func TestPanicOnAForeignKey(t *testing.T) {
	t.Parallel()
	nowhere := redis.Server{Network: "tcp", Address: "127.0.0.1:1"}
	s := newStore(t, Options{Server: nowhere, Fallback: Deny, Observer: &failedPanics{}, Panicked: func(any) {}})
	l := s.main.shardOf(0)
	w := &caller{decided: make(chan error, 1)}
	batch := limiter.Batch{Charges: []limiter.Charge{oneHit(1, hugeBucket)}}
	a := newRequest()
	a.call.Encode(1, &batch, [][]byte{[]byte("a")}, time.Minute)
	a.decideFor(w, 1, &batch)
	a.call.Err = &script.ForeignError{Key: "a"}
	l.open.push(a)
	must.OK(t, l.removeFailed(&batchRun{requests: []*request{a}}))
	if len(w.decided) != 1 || !batch.Denied {
		t.Errorf("%d decisions, denied is %t, want one denial", len(w.decided), batch.Denied)
	}
}
