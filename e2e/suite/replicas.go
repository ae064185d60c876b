package suite

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// StartReplicas starts one sluice in memory, or several that use a new store.
func StartReplicas(tb testing.TB, o sluice.Options, replicas int) (all []*sluice.Sluice) {
	tb.Helper()
	if replicas > 1 {
		o.Args = append(o.Args, "--store", "redis://"+storetest.Start(tb).Addr, "--store-fallback", "error", "--store-timeout", "1m")
	}
	for range replicas {
		s := StartSluice(tb, o)
		if replicas > 1 {
			Eventually(tb, "the store is used", func() bool { return Metrics(tb, s).Sum("sluice_store_up") == 1 })
		}
		all = append(all, s)
	}
	return all
}
