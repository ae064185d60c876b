package admin

import (
	"time"

	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// tableStatsAge is how long the numbers of counters are reused: counting takes milliseconds.
const tableStatsAge = 5 * time.Second

// callRates computes the rates of calls.
type callRates struct {
	rates live.Rates[int] // by index in the result of counts

	// The numbers of counters at countedAt.
	live, capacity int64
	countedAt      time.Time
}

// The indexes of totals in the result of counts. The buckets of response times follow.
const (
	allCalls = iota
	deniedCalls
	failedCalls
	firstBucket
)

func totals(c *telemetry.Calls) []uint64 {
	t := c.Totals()
	return append([]uint64{allCalls: t.Calls, deniedCalls: t.Denied, failedCalls: t.Errors}, t.Buckets...)
}

func (c *callRates) advance(now time.Time, calls *telemetry.Calls) {
	c.rates.Advance(now, func(record func(int, live.Counts)) {
		for i, n := range totals(calls) {
			record(i, live.Counts{Hits: n})
		}
	})
}

// statusLocked returns the status at the time now. The caller must hold a.mu.
func (a *API) statusLocked(now time.Time) live.Status {
	c := &a.calls
	rates := []float64{}
	for i, n := range totals(a.metrics.Calls) {
		rate, _ := c.rates.Rate(i, live.Counts{Hits: n}, now)
		rates = append(rates, rate.Hits)
	}
	if age := now.Sub(c.countedAt); age < 0 || age > tableStatsAge {
		c.live, c.capacity = countersThatFit(a.metrics.Table())
		c.countedAt = now
	}
	return live.Status{
		Calls: rates[allCalls], Denied: rates[deniedCalls], Errors: rates[failedCalls],
		Connections: a.metrics.OpenConnections(), P99: quantile(0.99, rates[allCalls], rates[firstBucket:], telemetry.ResponseTimeBounds()),
		Counters: c.live, MaxCounters: c.capacity, Store: a.storeStatus(),
	}
}

func (a *API) storeStatus() string {
	switch {
	case a.service.Settings().Decider == nil:
		return live.StoreNone
	case a.service.Up():
		return live.StoreAvailable
	}
	return live.StoreUnavailable
}

// countersThatFit returns the number of live counters, and how many fit into the memory of the table
// if their sizes are those of the live ones.
func countersThatFit(t telemetry.TableStats) (n, capacity int64) {
	used := int64(0)
	size := int64(64) // size of a counter in an empty table
	for i, c := range t.Classes {
		n += c.Live
		used += c.Live * int64(c.CounterBytes)
		if i == 0 {
			size = int64(c.CounterBytes)
		}
	}
	if n == 0 {
		return 0, t.Bytes / size
	}
	return n, max(n, int64(float64(t.Bytes)/float64(used)*float64(n)))
}

// quantile returns the quantile q of n values, interpolated within its bucket, or nil if n is 0.
// buckets contains the cumulative counts of values up to each bound. Values above all bounds count
// as the last bound.
func quantile(q, n float64, buckets, bounds []float64) *float64 {
	if n == 0 {
		return nil
	}
	rank := q * n
	below := 0.0
	lower := 0.0
	for i, count := range buckets {
		if count >= rank {
			value := lower + (bounds[i]-lower)*(rank-below)/(count-below)
			return &value
		}
		below = count
		lower = bounds[i]
	}
	return &lower
}
