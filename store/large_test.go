//go:build more

package store

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// scriptCalls returns how often the server has run a script.
func scriptCalls(t *testing.T, srv *storetest.Server) (n int) {
	t.Helper()
	for _, command := range []string{"eval", "evalsha"} {
		_, rest, _ := strings.Cut(srv.Must("INFO", "commandstats"), "cmdstat_"+command+":calls=")
		digits, _, _ := strings.Cut(rest, ",")
		some, _ := strconv.Atoi(digits)
		n += some
	}
	return n
}

// A large request is decided in the store, in parts of half a millisecond.
func TestLargeRequest(t *testing.T) {
	srv := storetest.Start(t)
	o := &recorder{}
	s := runStore(t, Options{Server: serverAt(srv), Observer: o, Fallback: Error})
	storetest.Eventually(t, "up", s.Up)
	charges := manyCharges(1, 300, ringOf60, 3)
	before := scriptCalls(t, srv)
	for n := range 3 {
		var c caller
		must.OK(t, c.decide(s, charges...))
		for i := range charges {
			if d := c.b.Decisions[i]; d.Over != (n > 0) || d.Before != min(uint64(n)*3, 3) {
				t.Fatalf("request %d, charge %d: decided %+v", n, i, d)
			}
		}
	}
	// The store denied the second request, and the denials of the third were cached.
	least := 2 * 300 * int(script.CostOf(ringOf60, 3)) / int(script.MaxRun)
	if got := scriptCalls(t, srv) - before; got < least {
		t.Errorf("%d runs of the script, want at least %d", got, least)
	}
}

// A request that would take the store too long is decided in memory, with every fallback, and is
// counted as too_large.
func TestTooLargeRequest(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t)
	o := &recorder{}
	s := newStore(t, Options{Server: serverAt(srv), Observer: o, Fallback: Error})
	runUntilEnd(t, s)
	storetest.Eventually(t, "up", s.Up)
	log := &limiter.Policy{Algorithm: limiter.SlidingLog, Limit: limiter.MaxLog, Window: time.Hour}
	var c caller
	for name, charges := range map[string][]limiter.Charge{
		"logs":  manyCharges(2001, 20, log, limiter.MaxLog),
		"rings": manyCharges(1, 1000, ringOf60, 1),
	} {
		before := o.decidedBy(byTooLarge)
		if err := c.decide(s, charges...); err != nil || len(c.b.Decisions) != len(charges) || c.b.Denied {
			t.Errorf("%s: decide = %v", name, err)
		}
		if got := o.decidedBy(byTooLarge) - before; got != len(charges) {
			t.Errorf("%s: %d charges decided in memory, want %d", name, got, len(charges))
		}
	}
	if o.decidedBy(byStore)+o.decidedBy(byFallback) > 0 {
		t.Errorf("decided %v, want all in memory", o.decided)
	}
	// The hits are charged to the store later, in several runs.
	peek := manyCharges(1, 1, ringOf60, 0)[0]
	storetest.Eventually(t, "charged", func() bool {
		return c.decide(s, peek) == nil && c.b.Decisions[0].Before == 1
	})
}
