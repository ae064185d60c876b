package blocks_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestReload raises and lowers a limit. A window during which replicas reload has the larger limit,
// and every other window its own. Each limit is reached.
func TestReload(t *testing.T) {
	t.Parallel()
	store := storetest.Start(t)
	f := startFleet(t, store, direct(store), tenants[:1], suite.Patience, patient...)
	f.load(t, 2)
	l, limit := f.ledgers[0], f.tenants[0].limit
	type change struct {
		from, to int64 // windows during which the limit may be this one
		limit    int
	}
	changes := []change{{limit: limit}}
	for _, factor := range []int{2, 1} {
		now := change{from: l.window(time.Now()), limit: factor * limit}
		suite.Replace(t, f.config, rules(f.tenants, factor))
		suite.Eventually(t, "all replicas have reloaded", func() bool {
			for _, s := range f.sluices {
				active := string(suite.Get(t, "http://"+s.Load().Addr("debug")+"/rlconfig"))
				if !strings.Contains(active, fmt.Sprintf("requests_per_unit=%d,", now.limit)) {
					return false
				}
			}
			return true
		})
		reloaded := l.window(time.Now())
		changes[len(changes)-1].to = reloaded
		suite.Eventually(t, "the limit is reached", func() bool {
			admitted, _ := l.certain(l.window(time.Now()))
			return l.window(time.Now()) > reloaded && admitted >= now.limit*9/10
		})
		changes = append(changes, now)
	}
	f.stop()
	changes[len(changes)-1].to = l.window(time.Now())
	f.verify(t, func(_ int, window int64) (bound int) {
		for _, c := range changes {
			if c.from <= window && window <= c.to {
				bound = max(bound, c.limit)
			}
		}
		return bound
	})
}

// reload replaces the rules and waits until all replicas use them.
func (m *mix) reload(t *testing.T, factor int) {
	t.Helper()
	suite.Replace(t, m.config, clientRules(m.clients, factor))
	suite.Eventually(t, "all replicas have reloaded", func() bool {
		for _, s := range m.sluices {
			if !strings.Contains(string(suite.Get(t, "http://"+s.Load().Addr("debug")+"/rlconfig")), strconv.Itoa(shownFactor+factor)) {
				return false
			}
		}
		return true
	})
}

// TestMixedReload raises and lowers bursts, slacks and the limits of windows while replicas have
// blocks. Intervals that touch the time of the larger ones may have as much more.
func TestMixedReload(t *testing.T) {
	t.Parallel()
	m := startPatientMix(t, clients)
	for range times(t, 1, 15) {
		which := m.some(4)
		m.round(t.Context(), which, anyPace(), noEvent)
		from := m.now()
		m.round(t.Context(), which, anyPace(), func(int) func() { m.reload(t, 3); return func() {} })
		m.round(t.Context(), which, anyPace(), func(int) func() { m.reload(t, 1); return func() {} })
		to := m.now()
		for _, all := range m.counters {
			for _, c := range all {
				c.extra = append(c.extra, span{from, to, 2 * c.capacity()})
			}
		}
		m.round(t.Context(), which, anyPace(), noEvent)
	}
	m.verify(t, 1)
	if n := m.failed.Load(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
}
