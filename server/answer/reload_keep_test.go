package answer

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
)

// TestALimitGetsATable has a limit take its numbers from a table only after it has given leases. A row then gives requests
// another counter, and goes.
func TestALimitGetsATable(t *testing.T) {
	r := newReloaded(t, atMost16)
	leases := r.begin(held)
	r.serve(strings.Replace(atMost16, "16", "16, table: t", 1))
	e, err := r.tables.Table("t")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Put([]string{"user"}, []string{"al"}, tables.Row{RequestsPerUnit: 5, Unit: 4}); err != nil {
		t.Fatal(err)
	}
	r.service.TablesChanged()
	r.end(leases)
	e.Delete([]string{"al"})
	r.service.TablesChanged()
	r.wantFull(held)
}

// TestAKeptLeaseHasTheNewNumbers raises the rate of a bucket while a request runs, whose client dies. What it has reserved is charged
// by the new rate.
func TestAKeptLeaseHasTheNewNumbers(t *testing.T) {
	const text = "{domain: d, descriptors: [{key: user, rate_limit: {name: s, algorithm: token_bucket, requests_per_unit: 360, unit: hour, reserve: {amount: 18, unsettled: keep, ttl: 1h}}}]}"
	r := newReloaded(t, text)
	b := r.service.Bearer("envoy")
	ask := func(x *Exchange, hits ...uint64) {
		t.Helper()
		if _, _, err := r.service.Answer(r.now, time.Minute, x, r.request(hits...)); err != nil {
			t.Fatal(err)
		}
	}
	ask(&Exchange{Bearer: b, Stream: 1})
	r.serve(strings.Replace(text, "360", "36000", 1))
	b.Leave(EndedDeaf, 1)
	r.service.book.bury(b.peer, b.peer.joined)
	x := &Exchange{}
	ask(x, 0)
	if used := x.plan.Batch.Decisions[0].Before; used != 18 {
		t.Errorf("%d hits are used, want 18", used)
	}
}

// TestStaleLeasesOfALivingClient has a client lose a lease because it seemed dead, and another in a reset or a reload. If it brings
// the first, it closes connections of requests that run. If it brings the second, that says nothing of its connections.
func TestStaleLeasesOfALivingClient(t *testing.T) {
	for name, lose := range map[string]func(*reloaded){
		"reset": func(r *reloaded) {
			a, err := r.service.Active()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Look("d", descriptorOf("user", "al")).Reset(t.Context(), r.now, 0); err != nil {
				t.Fatal(err)
			}
		},
		"reload": func(r *reloaded) { r.serve(lostBy["no rule"]); r.serve(atMost16) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newReloaded(t, atMost16)
			begin := func(stream uint32) (*Bearer, uint64) {
				x := Exchange{Bearer: r.service.Bearer("a"), Stream: stream}
				if _, _, err := r.service.Answer(r.now, time.Minute, &x, r.request()); err != nil {
					t.Fatal(err)
				}
				return x.Bearer, x.plan.Batch.Lease(0)
			}
			end := func(b *Bearer, lease uint64) {
				if _, _, err := r.service.Answer(r.now, time.Minute, &Exchange{Bearer: b, Stream: 9}, r.request(lease)); err != nil {
					t.Fatal(err)
				}
			}
			b, first := begin(1)
			b.Leave(EndedInSilence, 1)
			r.service.book.bury(b.peer, b.peer.joined)
			b, second := begin(1)
			if lose(r); len(r.service.book.leases) > 0 {
				t.Fatal("the lease is not lost")
			}
			if end(b, second); b.peer.closes {
				t.Error("a lease that was lost otherwise counts")
			}
			if end(b, first); !b.peer.closes {
				t.Error("a lease of a connection that was closed does not count")
			}
		})
	}
}
