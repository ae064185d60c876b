package answer

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

// stalled is a decider that decides nothing by itself.
type stalled struct {
	memory

	mu      sync.Mutex
	waiting []limiter.Waiter
	most    int
	full    chan struct{} // gets an element each time that mostGivings wait
}

func (d *stalled) Decide(_ limiter.Time, _ *limiter.Batch, _ [][]byte, w limiter.Waiter) (done bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, w)
	d.most = max(d.most, len(d.waiting))
	if len(d.waiting) == mostGivings {
		d.full <- struct{}{}
	}
	return false, nil
}

// decide answers all that wait, and returns their number.
func (d *stalled) decide() int {
	d.mu.Lock()
	all := d.waiting
	d.waiting = nil
	d.mu.Unlock()
	for _, w := range all {
		w.Decided(errors.New("the store is away"))
	}
	return len(all)
}

// However many leases a reload gives back while the store stalls, a bounded number of them is under way.
func TestFewLeasesAreGivenBackAtOnce(t *testing.T) {
	const leases = 3*mostGivings + 1
	table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d := &stalled{memory: memory{table}, full: make(chan struct{}, leases)}
	s := NewService(Settings{Bounds: fillBounds(Bounds{}), Decider: d, Namer: descriptors.NewNamer("p:", nil)}, table, newMetrics(t))
	r := review{service: s, waits: func() {}}
	for n := range uint64(leases) {
		l := &lease{given: given{key: leaseKey{identity.ID{Lo: n}, limiter.FirstLease}}, sibling: r.lost}
		l.policy = limiter.Policy{Algorithm: limiter.Concurrency, Limit: 1, Window: 1}
		r.lost = l
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		r.giveBack()
	}()
	given := 0
	for range leases / mostGivings {
		<-d.full
		given += d.decide()
	}
	<-all
	if given += d.decide(); given != leases || d.most != mostGivings || len(s.givings) > 0 {
		t.Errorf("%d of %d leases were given back, %d at once, want %d; %d are under way at the end", given, leases, d.most, mostGivings, len(s.givings))
	}
}

// A reload does not wait for a store that stalls, however many leases it gives back.
func TestAReloadDoesNotWaitForTheStore(t *testing.T) {
	const leases = 3*mostGivings + 1
	synctest.Test(t, func(t *testing.T) {
		table, err := limiter.New(limiter.Options{Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		d := &stalled{memory: memory{table}, full: make(chan struct{}, leases)}
		s := NewService(Settings{Bounds: fillBounds(Bounds{}), Decider: d, Namer: descriptors.NewNamer("p:", nil)}, table, newMetrics(t))
		policy := limiter.Policy{Algorithm: limiter.Concurrency, Limit: 1, Window: time.Hour}
		for n := range uint64(leases) {
			g := given{key: leaseKey{identity.ID{Lo: n}, limiter.FirstLease}, expires: limiter.Time(time.Hour)}
			s.book.enter(1, &g, &policy, "limit", []byte("gone"), &descriptors.Descriptor{})
		}
		rules := []string{"{domain: a}", "{domain: b}"}
		for _, text := range rules {
			if err := s.Serve(1, compile(t, text)); err != nil {
				t.Fatal(err)
			}
		}
		s.TablesChanged()
		given := 0
		for {
			synctest.Wait()
			n := d.decide()
			if given += n; n == 0 {
				break
			}
		}
		if given != leases || d.most != mostGivings || len(s.book.leases) > 0 || s.reviews.running {
			t.Errorf("%d of %d leases were given back, %d at once, want %d; %d are in the book", given, leases, d.most, mostGivings, len(s.book.leases))
		}
	})
}
