package answer

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/server/leases"
)

// TestLimitGetsTable adds a table to a limit that has granted leases. A row then gives requests
// another counter, and is deleted.
func TestLimitGetsTable(t *testing.T) {
	r := newReloaded(t, atMost16)
	open := r.begin(held)
	r.serve(strings.Replace(atMost16, "16", "16, table: t", 1))
	e, err := r.tables.Table("t")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Put([]string{"user"}, []string{"al"}, tables.Row{RequestsPerUnit: 5, Unit: 4}); err != nil {
		t.Fatal(err)
	}
	r.service.TablesChanged()
	r.endRequests(open)
	e.Delete([]string{"al"})
	r.service.TablesChanged()
	r.wantFull(held)
}

// TestKeptLeaseHasNewNumbers raises the rate of a bucket during a request whose client dies. Its
// reservation is charged at the new rate.
func TestKeptLeaseHasNewNumbers(t *testing.T) {
	const text = "{domain: d, descriptors: [{key: user, rate_limit: {name: s, algorithm: token_bucket, requests_per_unit: 360, unit: hour, reserve: {amount: 18, unsettled: keep, ttl: 1h}}}]}"
	synctest.Test(t, func(t *testing.T) {
		r := newReloaded(t, text)
		b := r.service.Connect("envoy")
		ask := func(x *Exchange, hits ...uint64) {
			t.Helper()
			if _, _, err := r.service.Answer(r.now, time.Minute, x, r.request(hits...)); err != nil {
				t.Fatal(err)
			}
		}
		ask(&Exchange{Connection: b, Stream: 1})
		r.serve(strings.Replace(text, "360", "36000", 1))
		b.Close(leases.Unresponsive, 1)
		time.Sleep(leaseGrace)
		synctest.Wait()
		x := &Exchange{}
		ask(x, 0)
		if used := x.plan.Batch.Decisions[0].Before; used != 18 {
			t.Errorf("%d hits are used, want 18", used)
		}
	})
}
