package leases

import (
	"iter"
	"sync"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// A reload may remove the limit that granted a lease, give it another algorithm, window or name, or remove the row that
// has its numbers. The end call then reaches another counter, or none, or Envoy looks for the lease under another name. If
// the reload is rolled back, the counter would hold what no end call has returned, until its window is over. So a reload
// revokes each lease that its own rules would not take back. Meanwhile nothing holds requests to the limit, so no rule
// could know how many run when it returns: a limit that returns counts the requests that begin from then on. Leases stay
// if only other fields of the limit change, or its place in the rules, and have the new fields.
//
// Each process does so for the leases that it has granted, those in a store too.

// Review revokes the leases that the active rules would not take back: of all limits, or only of those with tables. If that
// has to wait for a store, a goroutine continues, because a reload must not wait.
func (t *Lessor) Review(all bool) {
	q := &t.reviews
	q.mu.Lock()
	if !q.running {
		waits := make(chan struct{})
		q.waits = waits
		go t.runReviews(sync.OnceFunc(func() { close(waits) }))
	}
	q.running, q.due, q.all = true, true, q.all || all
	waits := q.waits
	q.mu.Unlock()
	<-waits
}

// reviews are the reviews of all leases. One runs at a time.
type reviews struct {
	mu           sync.Mutex // protects all fields
	running, due bool
	all          bool          // the one that is due is of all limits
	waits        chan struct{} // closed when the one that runs has to wait for a store, or ends
}

// runReviews reviews leases until no review is due. It calls waits before it waits for a store, and at the end.
func (t *Lessor) runReviews(waits func()) {
	defer waits()
	for {
		q := &t.reviews
		q.mu.Lock()
		due, all := q.due, q.all
		q.running, q.due, q.all = due, false, false
		q.mu.Unlock()
		if !due {
			return
		}
		t.reviewAll(all, waits)
	}
}

// reviewedAtOnce is the number of leases that are reviewed without releasing the lock, for which calls wait.
const reviewedAtOnce = 64

// reviewAll compares leases with the active rules and revokes those that they would not take back. It calls waits before
// it waits for a store.
func (t *Lessor) reviewAll(all bool, waits func()) {
	defer t.recovered()
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
			if n++; n%reviewedAtOnce == 0 {
				t.withoutLock(revoke)
			}
		}
	}()
	revoke()
}

// withoutLock releases the lock, which the caller holds, while it calls f.
func (t *Lessor) withoutLock(f func()) {
	t.mu.Unlock()
	defer t.mu.Lock()
	f()
}

// ReviewCall is [Lessor.Review] for the leases of a call that was planned by rules, or rows, that are no longer active.
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
	ended   *lease // list of those to revoke
	plan    descriptors.Plan
	request descriptors.Request
}

// checkLocked ends l if the end of its request would not return it. Otherwise it copies the current fields of the limit
// to l.
func (r *review) checkLocked(l *lease) {
	if len(l.origin) == 0 {
		return
	}
	limit := readOrigin(l.origin, &r.request)
	l.Partition = r.lessor.options.Plan(&r.plan, &r.request)
	for at := range r.plan.ChargesOf(0) {
		if c := &r.plan.Batch.Charges[at]; c.ID == l.ID && c.Policy.UsesLeases() && r.plan.LeaseLimit(0, at) == string(limit) {
			l.policy, l.Table = c.Policy.Clone(l.policy.Reserve), r.plan.Limits[at].Table != nil
			return
		}
	}
	r.lessor.endLocked(l, limitRemoved)
	l.sibling, r.ended = r.ended, l
}
