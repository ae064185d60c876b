package answer

import (
	"encoding/binary"
	"sync"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// A reload may remove the limit that gave a lease, give it another algorithm, window or name, or take the row away that
// has its numbers. The end of the request then reaches another counter, or none, or Envoy looks for the lease under
// another name. If the reload is rolled back, the counter would hold what no end has given back, until its window is
// over. So a reload gives back each lease that its own rules would not take back. Meanwhile nothing holds requests to
// the limit, so no rule could know how many run when it returns: a limit that returns counts the requests that begin
// from then on. Leases stay if only other fields of the limit change, or its place in the rules, and have the new fields.
//
// Each process does so for the leases that it has given, those in a store too.

// reviewLeases gives back the leases that the active rules would not take back: of all limits, or of those with tables. If
// that has to wait for a store, a goroutine goes on with it, because a reload must not wait.
func (s *Service) reviewLeases(all bool) {
	q := &s.reviews
	q.mu.Lock()
	if !q.running {
		waits := make(chan struct{})
		q.waits = waits
		go s.runReviews(sync.OnceFunc(func() { close(waits) }))
	}
	q.running, q.due, q.all = true, true, q.all || all
	waits := q.waits
	q.mu.Unlock()
	<-waits
}

// reviews are the reviews of leases. One runs at a time.
type reviews struct {
	mu           sync.Mutex
	running, due bool
	all          bool          // the one that is due is of all limits
	waits        chan struct{} // closed when the one that runs has to wait for a store, or ends
}

// runReviews reviews leases until no review is due. It calls waits before it waits for a store, and at the end.
func (s *Service) runReviews(waits func()) {
	defer waits()
	for {
		q := &s.reviews
		q.mu.Lock()
		due, all := q.due, q.all
		q.running, q.due, q.all = due, false, false
		q.mu.Unlock()
		if !due {
			return
		}
		s.reviewBook(all, waits)
	}
}

// reviewBook compares the leases in the book with the active rules, and gives back those that they would not take back. It calls
// waits before it waits for a store.
func (s *Service) reviewBook(all bool, waits func()) {
	k := s.book
	defer k.caught()
	r := review{service: s, waits: waits}
	func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		n := 0
		for _, l := range k.leases {
			if all || l.table {
				r.checkLocked(l)
			}
			if n++; n%reviewedAtOnce == 0 { // calls wait for the lock
				k.unlocked(r.giveBack)
			}
		}
	}()
	r.giveBack()
}

const reviewedAtOnce = 64

// unlocked calls f without the lock, which the caller has.
func (k *book) unlocked(f func()) {
	k.mu.Unlock()
	defer k.mu.Lock()
	f()
}

// reviewCall is reviewLeases for the leases of x, whose request was planned by rules, or rows, that are no longer active.
func (s *Service) reviewCall(x *Exchange) {
	r := review{service: s}
	s.book.mu.Lock()
	for _, at := range x.plan.AllLeases() {
		if l := s.book.leases[leaseKey{x.plan.Batch.Charges[at].ID, x.plan.Batch.Lease(at)}]; l != nil {
			r.checkLocked(l)
		}
	}
	s.book.mu.Unlock()
	r.giveBack()
}

// TablesChanged has leases reviewed after single rows of tables have changed.
func (s *Service) TablesChanged() { s.changeTables(func(*serving) {}) }

// changeTables changes the active rows, and has leases reviewed.
func (s *Service) changeTables(change func(*serving)) {
	for {
		old := s.rules.Load()
		if old == nil {
			return
		}
		// Requests that were planned before compare this pointer: see noteLeases.
		r := *old
		change(&r)
		if s.rules.CompareAndSwap(old, &r) {
			s.reviewLeases(false)
			return
		}
	}
}

// A review compares leases with the active rules.
type review struct {
	service *Service
	lost    *lease // list of those to be given back
	waits   func() // nil if there are few of them; see giveBackMany
	plan    descriptors.Plan
	request descriptors.Request
}

// checkLocked takes l out of the book if the end of its request would not give it back. Otherwise it copies the present
// fields of the limit to l. The rules are as new as those of all leases in the book, since they are read under the book's
// lock.
func (r *review) checkLocked(l *lease) {
	if len(l.origin) == 0 {
		return
	}
	rules := r.service.rules.Load()
	limit := r.read(l.origin)
	rules.set.Plan(&r.plan, &r.request, descriptors.Global{Look: true, Rows: rules.rows})
	l.partition = nil
	if i := r.plan.DomainIndex; i >= 0 {
		l.partition = rules.partitions[i]
	}
	for at := range r.plan.ChargesOf(0) {
		if c := &r.plan.Batch.Charges[at]; c.ID == l.key.id && c.Policy.Leases() && r.plan.LeaseLimit(0, at) == string(limit) {
			l.policy, l.table = c.Policy.Bare(l.policy.Reserve), r.plan.Limits[at].Table != nil
			return
		}
	}
	r.service.book.dropLocked(l)
	l.sibling, r.lost = r.lost, l
}

// giveBack gives back what the review has taken out of the book. Reservations cost nothing: if their counter is still
// charged, the end brings the cost.
func (r *review) giveBack() {
	if r.waits != nil {
		r.service.giveBackMany(r.lost, true, r.service.metrics.Leases.Reload, r.waits)
	} else {
		r.service.giveBack(r.lost, true, r.service.metrics.Leases.Reload)
	}
	r.lost = nil
}

// mostOriginBytes is the largest length of all origins. A lease beyond it has none and is not reviewed.
const mostOriginBytes = 16 << 20

// mostSpareOrigin is the largest capacity of an origin that is kept for another lease.
const mostSpareOrigin = 1 << 10

func spareOrigin(b []byte) []byte {
	if cap(b) > mostSpareOrigin {
		return nil
	}
	return b[:0]
}

// appendOrigin appends the origin of a lease: the name of its limit, and the domain and the descriptor of its request
// without the hits.
func appendOrigin(b []byte, limit string, domain []byte, d *descriptors.Descriptor) []byte {
	b = append(appendLength(b, len(limit)), limit...)
	b = append(appendLength(b, len(domain)), domain...)
	if o := &d.Override; d.HasOverride {
		b = binary.AppendUvarint(append(b, 1), uint64(o.RequestsPerUnit))
		b = binary.AppendUvarint(b, uint64(uint32(o.Unit))) //nolint:gosec // bits
		b = binary.AppendUvarint(b, uint64(o.UnitMultiplier))
	} else {
		b = append(b, 0)
	}
	for i := range d.Entries {
		e := &d.Entries[i]
		b = append(appendLength(b, len(e.Key)), e.Key...)
		b = append(appendLength(b, len(e.Value)), e.Value...)
	}
	return b
}

// appendLength is [binary.AppendUvarint], which is not inlined.
func appendLength(b []byte, n int) []byte {
	if n < 0x80 {
		return append(b, byte(n)) //nolint:gosec // a length
	}
	return binary.AppendUvarint(b, uint64(n))
}

// read makes r.request that of an origin, and returns the name of the limit. Both are views of b.
func (r *review) read(b []byte) (limit []byte) {
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[n:]
		return v
	}
	part := func() (p []byte) {
		n := number()
		p, b = b[:n:n], b[n:]
		return p
	}
	limit = part()
	d := descriptors.Descriptor{}
	if len(r.request.Descriptors) > 0 {
		d.Entries = r.request.Descriptors[0].Entries[:0]
	}
	r.request = descriptors.Request{Domain: part(), Descriptors: r.request.Descriptors[:0]}
	if d.HasOverride = number() > 0; d.HasOverride {
		d.Override = descriptors.Override{RequestsPerUnit: uint32(number()), Unit: int32(number()), UnitMultiplier: uint32(number())} //nolint:gosec // as appended
	}
	for len(b) > 0 {
		d.Entries = append(d.Entries, descriptors.Entry{Key: part(), Value: part()})
	}
	r.request.Descriptors = append(r.request.Descriptors, d)
	return limit
}
