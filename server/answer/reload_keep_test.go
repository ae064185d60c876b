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
