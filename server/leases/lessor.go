package leases

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/heap"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// A Lessor tracks the leases that this process has granted. Its methods, and those of its
// connections, may be called concurrently.
type Lessor struct {
	mu      sync.Mutex // protects the fields up to originBytes, and all leases, clients and connections
	leases  map[Key]*lease
	queue   heap.Heap[*lease] // all leases, ordered by expiry
	clients map[string]*client
	spare   []*lease // memory of ended leases, so that calls leave no garbage
	// originBytes is the total length of all origins.
	originBytes int

	latestCall atomic.Int64 // time of the newest call of RecordCall
	options    Options
	slots      chan struct{} // contains an element for each lease that revokeMany is releasing
	reviews    reviews
}

// Options configure a [Lessor].
type Options struct {
	// Grace is how long a client that seems dead may have no connection before its leases are
	// revoked. 0 means forever.
	Grace time.Duration
	// Shared is true if several processes share the counters. Another process may then return a
	// lease of this one, so the leases are not counted by limit.
	Shared bool
	// Now returns the time. Optional: the default is the time of the newest call of RecordCall.
	Now func() limiter.Time
	// Decider releases the hits of revoked leases.
	Decider Decider
	// Plan plans a request by the active rules without changing a counter, and returns the
	// partition of its domain. It is called with the lessor's lock held, so that a lease of newer
	// rules cannot be reviewed by older ones.
	Plan func(*descriptors.Plan, *descriptors.Request) *limiter.Partition
	// Panicked is called with the value of a panic in a goroutine of the lessor.
	Panicked func(value any)
	Metrics  *telemetry.Leases
}

// A Decider decides batches at the time now, as [limiter.Table.Decide] does. If done is false, it
// calls w.Decided exactly once from another goroutine. names contains the names of the charges'
// counters in the store.
type Decider interface {
	Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (done bool, err error)
}

// Key identifies a lease. Numbers are unique per counter.
type Key struct {
	ID     identity.ID
	Number uint64
}

// Lease is a lease that was granted to a request.
type Lease struct {
	Key

	Partition *limiter.Partition
	Name      []byte // name of the counter in a store
	Counters  *telemetry.RuleCounters
	Expires   limiter.Time
	Table     bool // whether a table row may override the limit's numbers

	Connection *Connection // nil if the transport reports neither resets of the call nor the close of its connection
	Stream     uint32      // stream of the call
}

// Origin is the limit and the request for which a lease was granted.
type Origin struct {
	Limit      string
	Domain     []byte
	Descriptor *descriptors.Descriptor
}

// lease is a granted lease, or one that is being revoked.
type lease struct {
	Lease
	policy limiter.Policy // a copy, because the memory of the charge's policy may be reused
	origin []byte         // the request, encoded by appendOrigin; empty if maxOriginBytes was reached

	sibling *lease // next granted lease of the same call, or the next lease of a list to be revoked
	index   int    // position in the queue
}

// Less implements heap order: the lease that expires first is the first of the queue.
func (l *lease) Less(other *lease) bool { return l.Expires < other.Expires }

// SetIndex sets the position in the queue.
func (l *lease) SetIndex(i int) { l.index = i }

// An event ends a granted lease. The package page draws the transitions.
type event byte

const (
	returned     event = iota // released by the end call, or by the cancellation of a delayed response
	expired                   // released by its counter at its expiry
	counterReset              // released by the reset of its counter
	displaced                 // not tracked any more: granted again, or maxLeases was reached
	callReset                 // the client has reset the call that acquired it
	clientDead                // the client seemed dead for the grace period
	limitRemoved              // the active rules no longer accept its return
	events
)

// revokes reports whether the lessor must release the lease's hits after the event.
func (e event) revokes() bool { return e >= callReset }

// maxLeases bounds the tracked leases. Beyond it, the lease that expires first is displaced: it
// stays in its counter until it is returned or expires.
const maxLeases = 1 << 16

// maxSpare bounds Lessor.spare.
const maxSpare = 4096

// New returns a lessor without leases.
func New(options Options) *Lessor {
	return &Lessor{
		options: options, slots: make(chan struct{}, maxRevoking), leases: map[Key]*lease{}, clients: map[string]*client{},
	}
}

// Grant tracks a lease of a counter with the given policy.
func (t *Lessor) Grant(now limiter.Time, granted *Lease, policy *limiter.Policy, origin *Origin) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(now)
	if old := t.leases[granted.Key]; old != nil {
		t.endLocked(old, displaced)
	}
	if len(t.queue) >= maxLeases {
		t.endLocked(t.queue[0], displaced)
	}
	var l *lease
	if last := len(t.spare) - 1; last >= 0 {
		l = t.spare[last]
		t.spare = t.spare[:last]
	} else {
		l = new(lease)
	}
	l.Lease = *granted
	l.policy = policy.Clone(l.policy.Reserve)
	l.origin = appendOrigin(l.origin, origin)
	if t.originBytes+len(l.origin) > maxOriginBytes {
		l.origin = spareOrigin(l.origin)
	}
	t.originBytes += len(l.origin)
	t.leases[l.Key] = l
	t.queue.Push(l)
	if !t.options.Shared {
		l.Counters.AddLeases(1)
	}
	if c := l.Connection; c != nil {
		c.addLocked(l)
	}
}

// Return ends a lease that its counter has released. c is the connection of the end call, nil if
// unknown. Return reports whether the lease was tracked.
func (t *Lessor) Return(c *Connection, k Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.leases[k]
	if c != nil {
		c.client.learnFromReturnLocked(k, l)
	}
	if l != nil {
		t.endLocked(l, returned)
	}
	return l != nil
}

// Forget ends the leases of a counter that was reset.
func (t *Lessor) Forget(id identity.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, l := range t.leases {
		if k.ID == id {
			t.endLocked(l, counterReset)
		}
	}
}

// Len returns the number of tracked leases, including those that have expired since the last call
// of Expire.
func (t *Lessor) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.leases)
}

// Expire ends the leases that have expired.
func (t *Lessor) Expire() {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(now)
}

func (t *Lessor) expireLocked(now limiter.Time) {
	for len(t.queue) > 0 && t.queue[0].Expires <= now {
		t.endLocked(t.queue[0], expired)
	}
}

// endLocked ends a granted lease. If the event revokes it, the caller must revoke it after
// releasing the lock. Otherwise its memory is reused.
func (t *Lessor) endLocked(l *lease, e event) {
	delete(t.leases, l.Key)
	t.originBytes -= len(l.origin)
	t.queue.Remove(l.index)
	if e == expired {
		l.Counters.CountExpired()
	}
	if !t.options.Shared {
		l.Counters.AddLeases(-1)
	}
	if c := l.Connection; c != nil {
		c.removeLocked(l)
	}
	if !e.revokes() && len(t.spare) < maxSpare {
		*l = lease{policy: limiter.Policy{Reserve: l.policy.Reserve}, origin: spareOrigin(l.origin)}
		t.spare = append(t.spare, l)
	}
}

// now returns the time by Options.Now, or the time of the newest call of RecordCall if there is no
// clock.
func (t *Lessor) now() limiter.Time {
	if t.options.Now != nil {
		return t.options.Now()
	}
	return limiter.Time(t.latestCall.Load())
}

// recoverPanic is deferred by goroutines of the lessor. A panic there is a bug, and must not end
// the process.
func (t *Lessor) recoverPanic() {
	if p := recover(); p != nil {
		t.options.Panicked(p)
	}
}
