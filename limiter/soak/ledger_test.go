package soak

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A grant is a number of hits that were admitted, or started, at some time between from and to. The
// exact time is not known, because the table may count a late hit as a newer one.
type grant struct {
	from, to    limiter.Time
	end         limiter.Time // for a fixed window, the window's end
	requestedAt limiter.Time
	hits        int64
}

// collectGrants collects the grants of counter n.
func collectGrants(ws []*worker, n int) []grant {
	var all []grant
	for _, w := range ws {
		all = append(all, w.grants[n]...)
	}
	return all
}

func sum(grants []grant) (hits int64) {
	for _, g := range grants {
		hits += g.hits
	}
	return hits
}

// peak returns the maximum of admitted hits and the policy's bound for it: hits in one window, in
// any interval as long as the window, or, for a bucket, beyond those that drained in an interval. A
// grant counts in an interval only if it was certainly within it.
func peak(p *limiter.Policy, grants []grant) (most, bound int64) {
	switch p.Algorithm {
	case limiter.SlidingWindow, limiter.SlidingLog:
		return peakInterval(grants, p.Window), int64(p.Limit)
	case limiter.TokenBucket:
		return peakBurst(grants, int64(p.Window), int64(p.Limit)), int64(p.Burst)
	case limiter.LeakyBucket:
		return peakBurst(grants, int64(p.Window), int64(p.Limit)), int64(p.Slack) + 1
	default:
		windows := map[limiter.Time]int64{}
		for _, g := range grants {
			windows[g.end] += g.hits
			most = max(most, windows[g.end])
		}
		return most, int64(p.Limit)
	}
}

// byTime returns the grants sorted by their starts and by their ends.
func byTime(grants []grant) (starts, ends []grant) {
	starts, ends = slices.Clone(grants), slices.Clone(grants)
	slices.SortFunc(starts, func(a, b grant) int { return cmp.Compare(a.from, b.from) })
	slices.SortFunc(ends, func(a, b grant) int { return cmp.Compare(a.to, b.to) })
	return starts, ends
}

// peakInterval returns the maximum number of hits in a half-open interval as long as window.
func peakInterval(grants []grant, window time.Duration) (most int64) {
	starts, ends := byTime(grants)
	ended, before, i := int64(0), int64(0), 0
	for _, b := range ends {
		ended += b.hits
		for ; i < len(starts) && starts[i].from <= b.to-limiter.Time(window); i++ {
			before += starts[i].hits
		}
		most = max(most, ended-before)
	}
	return most
}

// peakBurst returns the maximum by which the hits of any interval exceeded its length times
// limit/window, rounded up.
func peakBurst(grants []grant, window, limit int64) (most int64) {
	starts, ends := byTime(grants)
	var (
		ended, before int64
		least         int64 = math.MaxInt64
		i             int
	)
	at := func(t limiter.Time) int64 { return int64(t-epochOf(starts)) * limit }
	for _, b := range ends {
		ended += b.hits
		for ; i < len(starts) && starts[i].from <= b.to; i++ {
			least = min(least, before*window-at(starts[i].from))
			before += starts[i].hits
		}
		excess := ended*window - at(b.to) - least
		most = max(most, (excess+window-1)/window)
	}
	return most
}

func epochOf(starts []grant) limiter.Time { return starts[0].from }
