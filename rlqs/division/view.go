package division

import (
	"iter"
	"maps"
	"time"
)

// View is a snapshot of a bucket.
type View struct {
	ID    string
	Limit Limit
	// Rate is the divided limit in tokens per [Fill]. AssignedRate is the part of it that may be in
	// effect, including LostRate at closed streams and UnconfirmedRate, the part that awaits a
	// confirmation.
	Rate, AssignedRate, LostRate, UnconfirmedRate int64
	// LostFor is the time until the last lost rate expires.
	LostFor time.Duration
	// Learning is how long the assignments of a predecessor still count as in effect.
	Learning time.Duration
	Shares   []ShareView
}

// ShareView is a snapshot of the share of one stream.
type ShareView struct {
	Stream StreamID
	// Demand is the number of requests per second, estimated from reports.
	Demand float64
	// Rate is the rate assigned last, MaxRate the greatest that may be in effect.
	Rate, MaxRate Rate
	// Assigned reports whether there is an assignment, Confirmed whether Envoy has received it.
	Assigned, Confirmed bool
}

// View returns a snapshot of a bucket. ok is false if it is unknown or has no limit.
func (d *Divider) View(now Time, key Bucket) (View, bool) {
	d.advance(now)
	b := d.buckets[key]
	if b == nil || b.limit == nil {
		return View{}, false
	}
	v := View{
		ID: b.id, Limit: *b.limit, Rate: b.limit.perFill(), AssignedRate: b.assignedRate(), LostRate: b.lostRate(),
	}
	for _, l := range b.lost {
		if l.unknown {
			v.Learning = max(v.Learning, l.expiry-d.now)
		} else if l.rate > 0 {
			v.LostFor = max(v.LostFor, l.expiry-d.now)
		}
	}
	for i := range b.shares {
		s := &b.shares[i]
		if s.stream.closed { // becomes lost at the next division
			v.LostRate += int64(s.maxRate)
			v.LostFor = max(v.LostFor, d.lostExpiry(s)-d.now)
			continue
		}
		v.UnconfirmedRate += int64(s.maxRate) - int64(min(s.maxRate, s.current))
		v.Shares = append(v.Shares, ShareView{
			Stream: s.stream.id, Demand: float64(s.demand), Rate: s.current, MaxRate: s.maxRate,
			Assigned: s.assignment == assigned, Confirmed: s.assignment == assigned && !s.has(rateUnconfirmed),
		})
	}
	return v, true
}

// Summary is the result of [Divider.Summarize].
type Summary struct {
	Bucket Bucket
	// Limit is the limit of the bucket's last report.
	Limit              *Limit
	Rate, AssignedRate int64
	Demand             float64
	Shares             int // number of shares
}

// Summarize returns a summary of a bucket. ok is false if the bucket is not divided.
func (d *Divider) Summarize(key Bucket) (summary Summary, ok bool) {
	b := d.buckets[key]
	if b == nil || b.limit == nil || b.limit.Strategy != Divide {
		return Summary{}, false
	}
	summary = Summary{
		Bucket: key, Limit: b.limit, Rate: b.limit.perFill(), AssignedRate: b.assignedRate(), Shares: len(b.shares),
	}
	for i := range b.shares {
		summary.Demand += float64(b.shares[i].demand)
	}
	return summary, true
}

// Buckets returns an iterator over all buckets.
func (d *Divider) Buckets() iter.Seq[Bucket] { return maps.Keys(d.buckets) }

// Counts are values for metrics. The gauges come first; all others count since the divider was
// created.
type Counts struct {
	Streams, Buckets, Shares int
	// Bytes is the memory of all buckets, as [New] counts it.
	Bytes int
	// TooManyBuckets counts reports beyond a bound, Abandoned the buckets abandoned because they
	// were idle or no rule matched any more, Probed the buckets abandoned as a probe, Inherited the
	// lost rates that the next stream of their peer inherited, and Divisions the divisions of
	// buckets.
	TooManyBuckets, Abandoned, Probed, Inherited, Divisions uint64
}

// Counts returns the current values.
func (d *Divider) Counts() Counts {
	c := d.counts
	c.Streams = len(d.streams)
	c.Buckets = len(d.buckets)
	c.Shares = d.shares
	c.Bytes = d.bytes
	return c
}

// EachBucket calls f with up to n of the buckets in which a stream has a share. left is
// [math.MaxInt] in the first call, and then the value that the previous call returned; 0 means that
// all buckets were visited. If there are events between two calls, buckets may be repeated, but
// none that the stream had at the first call is missed. f must not call the divider's methods
// except [Divider.SetLimit].
func (d *Divider) EachBucket(id StreamID, left, n int, f func(key Bucket, id string)) int {
	s := d.streams[id]
	if s == nil {
		return 0
	}
	// A removed bucket is replaced by the last one, so iterating backwards misses none.
	left = min(left, len(s.shares))
	for end := max(left-n, 0); left > end; left-- {
		f(s.shares[left-1].key, s.shares[left-1].id)
	}
	return left
}
