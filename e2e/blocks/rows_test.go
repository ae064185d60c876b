package blocks_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestRowsWithBlocks lowers the number in a row of a table while the counter has a block. No request
// uses the block, and its unused hits are returned.
func TestRowsWithBlocks(t *testing.T) {
	t.Parallel()
	store := storetest.Start(t)
	text := "domain: d\ndescriptors: [{key: tenant, rate_limit: {unit: year, requests_per_unit: 60, table: plans}}]\n"
	f := startSluices(t, store, direct(store)[:1], text, suite.Patience, append([]string{"--table", "plans", "--tables-dir", t.TempDir()}, patient...)...)
	f.tenants, f.ledgers = []tenant{{name: "a", limit: 1, window: year}}, []*ledger{newLedger(year)}
	put := func(n int) {
		t.Helper()
		row := strings.NewReader(fmt.Sprintf(`{"requests_per_unit": %d}`, n))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+f.sluices[0].Load().Addr("debug")+"/api/v1/tables/plans/a", row)
		must.OK(t, err)
		request.Header.Set("Content-Type", "application/json")
		reply, err := http.DefaultClient.Do(request)
		must.OK(t, err)
		must.OK(t, reply.Body.Close())
		if reply.StatusCode != http.StatusOK {
			t.Fatal(reply.Status)
		}
	}
	earlier := 0 // denied hits count
	for _, high := range []int{1_000_000, 2_000_000} {
		put(high)
		first := f.decided(t, "block")
		suite.Eventually(t, "requests are decided from blocks", func() bool {
			for range 50 {
				if ok, _ := f.request(t.Context(), 0, 0, 1); !ok {
					t.Fatal("a request was denied")
				}
			}
			return f.decided(t, "block") > first+200
		})
		admitted, _ := f.ledgers[0].total()
		var changed atomic.Bool
		more, denied := 0, 1
		var client sync.WaitGroup
		client.Go(func() { // so that the block is not returned meanwhile
			for {
				late := changed.Load()
				if ok, _ := f.request(t.Context(), 0, 0, 1); !ok {
					return
				} else if late {
					more++
				}
			}
		})
		put(admitted + 10)
		changed.Store(true)
		client.Wait()
		if more > 10 {
			t.Errorf("%d requests were admitted with the new row, which allows at most 10", more)
		}
		admitted, _ = f.ledgers[0].total()
		suite.Eventually(t, "all unused hits are returned, and no others", func() bool {
			count, unused := f.counter(t, 0)
			return unused[0] == 0 && count == admitted+earlier+denied
		})
		earlier += denied
	}
}
