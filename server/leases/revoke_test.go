package leases

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// stalled is a decider that decides only when decide is called.
type stalled struct {
	mu         sync.Mutex
	pending    []limiter.Waiter
	maxPending int           // maximum number of pending decisions so far
	full       chan struct{} // receives an element each time that maxRevoking decisions are pending
}

func (d *stalled) Decide(_ limiter.Time, _ *limiter.Batch, _ [][]byte, w limiter.Waiter) (done bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending = append(d.pending, w)
	d.maxPending = max(d.maxPending, len(d.pending))
	if len(d.pending) == maxRevoking {
		d.full <- struct{}{}
	}
	return false, nil
}

// decide completes all pending decisions and returns their number.
func (d *stalled) decide() int {
	d.mu.Lock()
	all := d.pending
	d.pending = nil
	d.mu.Unlock()
	for _, w := range all {
		w.Decided(errors.New("the store is unavailable"))
	}
	return len(all)
}

// newStalled returns clients with the given number of leases, and the stalled decider of their
// lessor.
func newStalled(t *testing.T, leases int) (*clients, *stalled) {
	t.Helper()
	d := &stalled{full: make(chan struct{}, leases)}
	return newClients(t, noLimit, func(o *Options) { o.Decider, o.Shared = d, true }), d
}

// TestRevocationsAreBounded checks the bound on concurrent releases. A reload revokes more leases
// than that while the store is stalled.
func TestRevocationsAreBounded(t *testing.T) {
	const leases = 3*maxRevoking + 1
	c, d := newStalled(t, leases)
	var list *lease
	for n := range uint64(leases) {
		l := &lease{Lease: Lease{Key: Key{identity.ID{Lo: n}, limiter.FirstLease}}, sibling: list}
		l.policy = limiter.Policy{Algorithm: limiter.Concurrency, Limit: 1, Window: 1}
		list = l
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		c.revokeMany(list, limitRemoved, func() {})
	}()
	revoked := 0
	for range leases / maxRevoking {
		<-d.full
		revoked += d.decide()
	}
	<-all
	if revoked += d.decide(); revoked != leases || d.maxPending != maxRevoking || len(c.slots) > 0 {
		t.Errorf("%d of %d leases were released, at most %d concurrently, want %d; %d releases are running at the end", revoked, leases, d.maxPending, maxRevoking, len(c.slots))
	}
}

// TestReloadDoesNotWaitForStore checks that a reload that revokes many leases does not wait for a
// stalled store.
func TestReloadDoesNotWaitForStore(t *testing.T) {
	const leases = 3*maxRevoking + 1
	synctest.Test(t, func(t *testing.T) {
		c, d := newStalled(t, leases)
		policy := limiter.Policy{Algorithm: limiter.Concurrency, Limit: 1, Window: time.Hour}
		for n := range uint64(leases) {
			granted := Lease{Key: Key{identity.ID{Lo: n}, limiter.FirstLease}, Expires: limiter.Time(time.Hour)}
			c.Grant(1, &granted, &policy, &Origin{"limit", []byte("gone"), &descriptors.Descriptor{}})
		}
		c.Review(true)
		c.Review(true)
		c.Review(false)
		revoked := 0
		for {
			synctest.Wait()
			n := d.decide()
			if revoked += n; n == 0 {
				break
			}
		}
		if revoked != leases || d.maxPending != maxRevoking || len(c.leases) > 0 || c.reviews.running {
			t.Errorf("%d of %d leases were released, at most %d concurrently, want %d; %d are still granted", revoked, leases, d.maxPending, maxRevoking, len(c.leases))
		}
	})
}
