package leases

import (
	"iter"
	"sync"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// A reload may remove the limit that granted a lease, change its algorithm, window or name, or
// remove its table row. The end call then reaches another counter or none, or Envoy looks for the
// lease under another name. If the reload were rolled back, the counter would contain the lease
// until its window is over. A reload therefore revokes each lease that the new rules no longer
// accept. If the limit is restored later, it only counts requests that start after that, because
// the number of running requests is unknown. If a reload changes only other fields of the limit, or
// its position in the rules, its leases stay and get the new fields.

// Review revokes the leases that the active rules no longer accept. It reviews the leases of all
// limits, or only those of limits with tables. If it has to wait for a store, it returns and
// continues in a goroutine, because a reload must not wait.
func (t *Lessor) Review(all bool) {
	q := &t.reviews
	q.mu.Lock()
	if !q.running {
		waits := make(chan struct{})
		q.waits = waits
		go t.runReviews(sync.OnceFunc(func() { close(waits) }))
	}
	q.running = true
	q.due = true
	q.all = q.all || all
	waits := q.waits
	q.mu.Unlock()
	<-waits
}

// reviews is the state of the reviews of all leases. One runs at a time.
type reviews struct {
	mu           sync.Mutex // protects all fields
	running, due bool
	all          bool          // whether the review that is due covers all limits
	waits        chan struct{} // closed when the running review has to wait for a store, or ends
}

// runReviews reviews leases until no review is due. It calls waits before it waits for a store, and
// at the end.
func (t *Lessor) runReviews(waits func()) {
	defer waits()
	for {
		q := &t.reviews
		q.mu.Lock()
		due := q.due
		all := q.all
		q.running = due
		q.due = false
		q.all = false
		q.mu.Unlock()
		if !due {
			return
		}
		t.reviewAll(all, waits)
	}
}

// reviewBatch is the number of leases that are reviewed without releasing the lock.
const reviewBatch = 64

// reviewAll revokes the leases that the active rules no longer accept. It calls waits before it
// waits for a store.
func (t *Lessor) reviewAll(all bool, waits func()) {
	defer t.recoverPanic()
	r := review{lessor: t}
	revoke := func() {
		t.revokeMany(r.ended, limitRemoved, waits)
		r.ended = nil
	}
	func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		n := 0
		for _, l := range t.leases {
			if all || l.Table {
				r.checkLocked(l)
			}
			if n++; n%reviewBatch == 0 {
				t.withoutLock(revoke)
			}
		}
	}()
	revoke()
}

// withoutLock releases the lock, calls f, and acquires the lock again.
func (t *Lessor) withoutLock(f func()) {
	t.mu.Unlock()
	defer t.mu.Lock()
	f()
}

// ReviewCall is [Lessor.Review] for the leases of a single call. It is needed if the rules or table
// rows by which the call was planned are not active any more.
func (t *Lessor) ReviewCall(granted iter.Seq[Key]) {
	r := review{lessor: t}
	func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for k := range granted {
			if l := t.leases[k]; l != nil {
				r.checkLocked(l)
			}
		}
	}()
	t.revoke(r.ended, limitRemoved)
}

// A review compares leases with the active rules.
type review struct {
	lessor  *Lessor
	ended   *lease // list of the leases to revoke
	plan    descriptors.Plan
	request descriptors.Request
}

// checkLocked ends l if the active rules no longer accept its return. Otherwise it copies the
// limit's current fields to l.
func (r *review) checkLocked(l *lease) {
	if len(l.origin) == 0 {
		return
	}
	limit := readOrigin(l.origin, &r.request)
	partition := r.lessor.options.Plan(&r.plan, &r.request)
	moved := partition != l.Partition && !r.lessor.options.Shared // then the limit has another counter, unless it is pinned
	for at := range r.plan.ChargesOf(0) {
		c := &r.plan.Batch.Charges[at]
		if (!moved || c.Policy.Pinned) && c.ID == l.ID && c.Policy.UsesLeases() &&
			r.plan.LeaseLimit(0, at) == string(limit) {
			l.policy = c.Policy.Clone(l.policy.Reserve)
			l.Table = r.plan.Limits[at].Table != nil
			l.Partition = partition
			return
		}
	}
	r.lessor.endLocked(l, limitRemoved)
	l.sibling = r.ended
	r.ended = l
}
