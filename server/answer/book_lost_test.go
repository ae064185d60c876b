package answer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// TestResetsForgetLeases resets the counter of calls that are under way, in both ways, and ends them after it.
func TestResetsForgetLeases(t *testing.T) {
	for name, look := range map[string]func(*Active) *Look{
		"one descriptor": func(a *Active) *Look { return a.Look("d", descriptorOf("k", "v")) },
		"denied keys": func(a *Active) *Look {
			c := a.service.live.Select(live.Selection{Domain: "d"})[0]
			return a.LookAt(0, limiter.Charge{ID: c.ID, Policy: c.Policy}, c.Name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := service(t, Settings{Clock: clock.New()}, tenPlaces)
			c := &clients{t: t, service: s}
			b := s.Bearer("a")
			var leases []uint64
			for lease := c.call(b, 0); lease > 0; lease = c.call(b, 0) {
				leases = append(leases, lease)
			}
			c.wantOut(10)
			a, err := s.Active()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := look(a).Reset(t.Context(), s.now(), 0); err != nil {
				t.Fatal(err)
			}
			c.wantOut(0)
			lease := c.call(b, 0)
			for _, old := range leases {
				c.call(b, old)
			}
			c.wantOut(1)
			c.call(b, lease)
			c.wantOut(0)
			b.Leave(EndedInSilence, 5)
			if len(s.book.leases) > 0 || len(s.book.queue) > 0 || len(s.book.peers) > 0 {
				t.Errorf("the book has %d leases and %d clients", len(s.book.leases), len(s.book.peers))
			}
		})
	}
}

// TestAStaleLeaseLeavesTheBook brings a lease back whose place was dropped without the book's knowledge.
func TestAStaleLeaseLeavesTheBook(t *testing.T) {
	s := service(t, Settings{Clock: clock.New()}, tenPlaces)
	c := &clients{t: t, service: s}
	b := s.Bearer("a")
	lease := c.call(b, 0)
	held := b.calls[c.calls]
	if _, err := s.decider.Reset(t.Context(), s.now(), peek(held.key.id, &held.policy), nil, 0); err != nil {
		t.Fatal(err)
	}
	c.call(b, lease)
	c.wantOut(0)
}

// TestALateDecisionKeepsTheClient ends a connection while a store decides a call of it, which is noted after the client is
// back by another connection. The client keeps what it holds when it loses one of two connections later, since it lives.
func TestALateDecisionKeepsTheClient(t *testing.T) {
	for _, resets := range []bool{true, false} { // what the call took, as the transport does
		synctest.Test(t, func(t *testing.T) {
			s := service(t, Settings{Clock: clock.New(), LeaseGrace: time.Second}, tenPlaces)
			c := &clients{t: t, service: s}
			first := s.Bearer("a")
			first.Leave(EndedInSilence, 1)
			second := s.Bearer("a")
			lease := c.call(first, 0)
			if resets {
				first.Reset(c.calls)
			} else {
				c.call(second, lease)
			}
			third := s.Bearer("a")
			if second.peer != third.peer || s.book.peers["a"] != third.peer {
				t.Error("two connections of one client are of two")
			}
			c.call(second, 0) // for long
			c.call(third, c.call(third, 0))
			second.Leave(EndedInSilence, 5)
			for range 5 {
				time.Sleep(time.Second)
				c.call(third, c.call(third, 0))
			}
			c.wantOut(1)
			third.Leave(EndedInSilence, 5)
			time.Sleep(2 * time.Second)
			c.wantOut(0)
		})
	}
}

// peek is a batch that changes nothing, on one counter.
func peek(id identity.ID, p *limiter.Policy) *limiter.Batch {
	return &limiter.Batch{Charges: []limiter.Charge{{ID: id, Policy: p}}}
}
