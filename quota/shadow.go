package quota

import "time"

// shadowSpare is how much of a shadow limit may be saved up: reports come every five seconds, each with the hits of as long.
const shadowSpare = 5 * time.Second

// Beyond counts hits of a bucket that may all pass against its limit, and returns how many of them are beyond: what would
// have been denied if the limit were divided, to within what [shadowSpare] is worth, or MinTokens. It is 0 for other buckets.
func (d *Divider) Beyond(now Time, key Bucket, hits uint64) uint64 {
	d.advance(now)
	b := d.buckets[key]
	if b == nil || b.limit == nil || b.limit.Verdict != AllowAll || b.limit.Window <= 0 {
		return 0
	}
	perSecond := float64(b.limit.rate()) / Fill.Seconds()
	most := max(perSecond*shadowSpare.Seconds(), float64(b.limit.MinTokens))
	if b.spared == 0 {
		b.spare = most
	}
	b.spare = min(most, b.spare+perSecond*(d.now-b.spared).Seconds())
	b.spared = d.now
	beyond := float64(hits) - max(b.spare, 0)
	b.spare = max(b.spare-float64(hits), 0)
	if beyond < 1 {
		return 0
	}
	return min(uint64(beyond), hits)
}
