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

// A Lessor tracks the leases that this process has granted. Its methods, and those of its connections, may be called
// concurrently.
type Lessor struct {
	mu      sync.Mutex // protects the fields up to originBytes, and all leases, clients and connections
	leases  map[Key]*lease
	queue   heap.Heap[*lease] // all leases; the first one expires first
	clients map[string]*client
	spare   []*lease // memory of ended leases, so that calls leave no garbage
	// originBytes is the length of all origins.
	originBytes int

	latest  atomic.Int64 // the time of the newest request
	options Options
	slots   chan struct{} // has an element for each lease that revokeMany is returning
	reviews reviews
}

// Options are those of a [Lessor].
type Options struct {
	// Grace is how long a client that seems dead may have no connection before its leases are revoked. 0 means for any
	// time.
	Grace time.Duration
	// Shared is true if several processes share the counters. Another one may then return a lease of this one, so
	// the leases are not counted by limit.
	Shared bool
	// Now returns the time. Optional: the default is the time of the newest request that had to do with leases.
	Now func() limiter.Time
	// Decider returns what revoked leases hold.
	Decider Decider
	// Plan plans a request by the active rules without changing a counter, and returns the partition of its domain. It
	// is called with the lessor's lock held, so it is never older than a lease that it is called for.
	Plan func(*descriptors.Plan, *descriptors.Request) *limiter.Partition
	// Panicked is called with the value of a panic in a goroutine of the lessor.
	Panicked func(value any)
	Metrics  *telemetry.Leases
}

// A Decider decides batches at the time now, as [limiter.Table.Decide] does, or begins to and reports false. Then it
// calls w.Decided once, from another goroutine. The names are those of the charges in a store.
type Decider interface {
	Decide(now limiter.Time, b *limiter.Batch, names [][]byte, w limiter.Waiter) (done bool, err error)
}

// Key identifies a lease: numbers are unique for a counter.
type Key struct {
	ID     identity.ID
	Number uint64
}

// Lease is a lease that a request has taken.
type Lease struct {
	Key

	Partition *limiter.Partition
	Name      []byte // of the counter in a store
	Counters  *telemetry.RuleCounters
	Expires   limiter.Time
	Table     bool // whether a row of a table may have the limit's numbers

	Connection *Connection // nil if it is not known when the call is reset or its connection ends
	Stream     uint32
}

// Origin is the limit and the request that a lease was granted for.
type Origin struct {
	Limit      string
	Domain     []byte
	Descriptor *descriptors.Descriptor
}

// lease is one that is granted, or that is being revoked.
type lease struct {
	Lease
	policy limiter.Policy // a copy: the charge's may be memory of an exchange
	origin []byte         // see appendOrigin; empty if there was no room for it

	sibling *lease // another of the same call, or of a list of leases to revoke
	index   int    // in the queue
}

// Less makes the lease that expires first the first of the queue.
func (l *lease) Less(other *lease) bool { return l.Expires < other.Expires }

// SetIndex notes the index in the queue.
func (l *lease) SetIndex(i int) { l.index = i }

// An event ends a granted lease. The package page draws the transitions.
type event byte

const (
	returned     event = iota // the end call, or a cancelled response, has given back what it holds
	expired                   // its counter no longer holds it
	counterReset              // its counter no longer holds anything
	displaced                 // its memory is needed for another one
	callReset                 // the client has reset the call that was answered with it
	clientDead                // the client seemed dead for the grace
	limitRemoved              // the active rules would not take it back
	events
)

// revokes reports whether the event makes the lessor give back what the lease holds.
func (e event) revokes() bool { return e >= callReset }

// maxLeases is how many leases are tracked. Beyond it, the one that expires first is displaced: its counter holds it
// until it expires, unless it is returned.
const maxLeases = 1 << 16

// maxSpare bounds Lessor.spare.
const maxSpare = 4096

// New returns a lessor without leases.
func New(options Options) *Lessor {
	return &Lessor{options: options, slots: make(chan struct{}, maxRevoking), leases: map[Key]*lease{}, clients: map[string]*client{}}
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
		l, t.spare = t.spare[last], t.spare[:last]
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

// Return ends a lease that its counter has taken back. The request that brought it came over the connection c, nil if
// that is not known. Return reports whether the lease was granted until now.
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

// Len returns the number of leases that are granted, with those that have expired since the last call.
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

// endLocked ends a granted lease by an event. If that revokes the lease, the caller revokes it once it has released the
// lock. Otherwise the memory of the lease is for another one.
func (t *Lessor) endLocked(l *lease, e event) {
	delete(t.leases, l.Key)
	t.originBytes -= len(l.origin)
	t.queue.Remove(l.index)
	if !t.options.Shared {
		l.Counters.AddLeases(-1)
		if e == expired {
			l.Counters.CountExpired()
		}
	}
	if c := l.Connection; c != nil {
		c.removeLocked(l)
	}
	if !e.revokes() && len(t.spare) < maxSpare {
		*l = lease{policy: limiter.Policy{Reserve: l.policy.Reserve}, origin: spareOrigin(l.origin)}
		t.spare = append(t.spare, l)
	}
}

// now returns the time, or without a clock that of the newest request that had to do with leases.
func (t *Lessor) now() limiter.Time {
	if t.options.Now != nil {
		return t.options.Now()
	}
	return limiter.Time(t.latest.Load())
}

// recovered is deferred by goroutines of the lessor. A panic there is a bug, and must not end the process.
func (t *Lessor) recovered() {
	if p := recover(); p != nil {
		t.options.Panicked(p)
	}
}
