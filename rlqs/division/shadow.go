package division

import (
	"time"
)

// shadowBurst is the burst of a shadow limit: reports come every five seconds, each with the hits
// of that time.
const shadowBurst = 5 * time.Second

// CountShadowHits counts hits of a bucket whose limit is in shadow mode. It returns how many of
// them exceed the limit, that is how many would have been denied if the limit were divided. It
// allows a burst of [shadowBurst] or of MinTokens, whichever is larger. It returns 0 for other
// buckets.
func (d *Divider) CountShadowHits(now Time, key Bucket, hits uint64) uint64 {
	d.advance(now)
	b := d.buckets[key]
	if b == nil || b.limit == nil || b.limit.Strategy != AllowAll || b.limit.Window <= 0 {
		return 0
	}
	if b.limit.Hits == 0 {
		return hits
	}
	perSecond := float64(b.limit.perFill()) / Fill.Seconds()
	capacity := max(perSecond*shadowBurst.Seconds(), float64(b.limit.MinTokens))
	if b.shadowAt == 0 {
		b.shadowTokens = capacity
	}
	b.shadowTokens = min(capacity, b.shadowTokens+perSecond*(d.now-b.shadowAt).Seconds())
	b.shadowAt = d.now
	admitted := min(hits, uint64(b.shadowTokens)) // the others use no tokens
	b.shadowTokens -= float64(admitted)
	return hits - admitted
}
