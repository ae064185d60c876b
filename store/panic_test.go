//go:build more

package store

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// batchSizes records the largest number of charges in a batch.
type batchSizes struct {
	recorder
	largest atomic.Int64
}

func (o *batchSizes) Batch(_ time.Duration, charges int) {
	o.largest.Store(max(o.largest.Load(), int64(charges)))
}

// If the decision of a request panics, the fallback decides it, and the other requests of its batch
// get the store's decision. A waiter that panics does not affect others.
func TestPanicCostsOneRequest(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	o := &batchSizes{}
	panics := make(chan any, 3)
	s, err := New(Options{
		Server: serverAt(srv), Timeout: longTimeout, DialTimeout: time.Minute, Fallback: Deny, Table: newTable(t), Observer: o,
		Panicked: func(thrown any) { panics <- thrown },
	})
	must.OK(t, err)
	s.options.Timeout = time.Minute // the test may take long, and the server is stopped meanwhile
	runUntilEnd(t, s)
	storetest.Eventually(t, "up", s.Up)
	sh := s.main.shardOf(0)
	srv.Stop()
	put := func(w limiter.Waiter, sent, decided *limiter.Batch) {
		a := newRequest()
		a.call.Encode(limiter.Time(time.Now().UnixNano()), sent, [][]byte{[]byte("s1{1}t1")}, 0)
		a.batch, a.waiter = decided, w
		if !a.send(sh, s.options.Timeout) {
			t.Fatal("the shard is unavailable")
		}
	}
	type pendingRequest struct {
		batch   limiter.Batch
		decided replyChan
	}
	one := func() *pendingRequest {
		return &pendingRequest{limiter.Batch{Charges: []limiter.Charge{oneHit(1, hugeBucket)}}, make(replyChan, 1)}
	}
	// Each sender sends a batch of one request. All later requests form one batch.
	var ahead, behind []*pendingRequest
	for n := 0; sh.hasRoom(); n++ {
		a := one()
		put(a.decided, &a.batch, &a.batch)
		ahead = append(ahead, a)
		storetest.Eventually(t, "a sender has the request", func() bool {
			sh.mu.Lock()
			defer sh.mu.Unlock()
			busy := 0
			for _, since := range sh.sendingSince {
				if !since.IsZero() {
					busy++
				}
			}
			return len(sh.queue) == 0 && busy == n+1
		})
	}
	bad := one()
	for n := range 5 {
		a := one()
		switch n {
		case 1: // the reply is for one charge, and the batch has two
			bad.batch.Charges = append(bad.batch.Charges, oneHit(2, hugeBucket))
			put(bad.decided, &a.batch, &bad.batch)
		case 3:
			put(panicking{}, &a.batch, &a.batch)
		default:
			put(a.decided, &a.batch, &a.batch)
			behind = append(behind, a)
		}
	}
	srv.Continue()
	for _, a := range append(ahead, behind...) {
		if err := <-a.decided; err != nil || a.batch.Denied {
			t.Errorf("decided %+v, %v, want the store's decision", a.batch.Decisions, err)
		}
	}
	if err := <-bad.decided; err != nil || !bad.batch.Denied || len(bad.batch.Decisions) != 2 {
		t.Errorf("decided %+v, %v, want the fallback's", bad.batch.Decisions, err)
	}
	<-panics
	if thrown := <-panics; len(panics) != 0 {
		t.Errorf("%d panics in addition to %v were counted, want two", len(panics), thrown)
	}
	if !s.Up() || o.largest.Load() < 5 {
		t.Errorf("up is %v, want true; the largest batch has %d charges, want five", s.Up(), o.largest.Load())
	}
}

// hasRoom reports whether another batch may be in flight.
func (sh *shard) hasRoom() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	_, room := sh.roomLocked()
	return room
}

type panicking struct{}

func (panicking) Decided(error)             { panic("a waiter's bug") }
func (panicking) Exceeded(int) func(uint64) { return nil }

// If finishing a request with parts panics, the fallback decides it: its hits are unsynced, and
// those of the store are refunded.
func TestPanicAfterTheParts(t *testing.T) {
	t.Parallel()
	first, second := storetest.Start(t), storetest.Start(t)
	seconds := serverAt(second)
	o := &panicsOnce{}
	s := runStore(t, Options{Server: serverAt(first), PerSecond: &seconds, Observer: o})
	storetest.Eventually(t, "up", s.Up)
	day := oneHit(1, hugeFixedWindow)
	second1 := oneHit(2, &limiter.Policy{Algorithm: limiter.TokenBucket, Limit: 1, Window: time.Second, Burst: 1 << 30})
	permit := permitCharge(3, 5)
	o.armed.Store(true)
	var c, other caller
	if err := c.decide(s, day, second1, permit); err != nil || c.b.Denied || c.b.Lease(2) == 0 {
		t.Fatal(err, c.b.Decisions)
	}
	if o.armed.Load() {
		t.Fatal("no panic")
	}
	storetest.Eventually(t, "all hits are synced", func() bool { return o.syncedHits() == 3 })
	storetest.Eventually(t, "each hit counts once", func() bool {
		return other.usedHits(t, s, day) == 1 && other.usedHits(t, s, permit) == 1
	})
}

// If a reply is lost in a panic, the leases that the store granted in it are released, whether the
// fallback decides before or after the panic.
func TestPanicAfterAReply(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{true, false} {
		srv := storetest.Start(t)
		r := newRelay(t, srv.Addr, nil, false)
		var armed atomic.Bool
		panicked := make(chan any, 1)
		s := runStore(t, Options{
			Server: redis.Server{Network: "tcp", Address: r.addr}, Fallback: Deny, Timeout: time.Minute, DialTimeout: time.Minute,
			Clock: func() time.Time {
				if armed.CompareAndSwap(true, false) {
					panic("a bug")
				}
				return time.Now()
			},
			Panicked: func(thrown any) { panicked <- thrown },
		})
		other := runStore(t, Options{Server: serverAt(srv), Fallback: Error})
		storetest.Eventually(t, "up", func() bool { return s.Up() && other.Up() })
		var c, reader caller
		permit := permitCharge(1, 3)
		hasRun := func() bool { return reader.heldHits(t, other, permit) == 1 }
		if late {
			c.startLate(t, s, r, replied, hasRun, permit)
		} else {
			r.pauseReplies(true)
			if done, err := c.start(s, 0, permit); done {
				t.Fatal(err)
			}
			storetest.Eventually(t, "the store has run the request", hasRun)
		}
		armed.Store(true)
		r.pauseReplies(false)
		<-panicked
		if !late {
			if err := <-c.decided; err != nil || !c.b.Denied {
				t.Errorf("decided %+v, %v, want the fallback's decision", c.b.Decisions, err)
			}
		}
		storetest.Eventually(t, "nothing is held", func() bool { return reader.heldHits(t, other, permit) == 0 && s.unsyncedCounters() == 0 })
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
