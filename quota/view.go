package quota

import (
	"iter"
	"maps"
	"time"
)

// View is what is known of a bucket.
type View struct {
	ID    string
	Limit Limit
	// Rate is what is divided, in tokens per [Fill]; InForce what may be in force of it, of which Lost is
	// held by streams that have ended, and Unconfirmed is how much of it is waiting for a confirmation.
	Rate, InForce, Lost, Unconfirmed int64
	// LostFor is how long it takes until the last of what is lost has ended.
	LostFor time.Duration
	// Learning is how long everything that a predecessor may have assigned still counts as in force.
	Learning time.Duration
	Holders  []HolderView
}

// HolderView is what is known of a holder of a bucket.
type HolderView struct {
	Holder Holder
	// Demand is requests a second, as estimated from its reports.
	Demand float64
	// Share is the rate that it was told last, Held the most that may be in force.
	Share, Held Rate
	// Assigned says that it was told something, Confirmed that this has arrived.
	Assigned, Confirmed bool
}

// View returns what is known of a bucket.
func (d *Divider) View(now Time, key Bucket) (View, bool) {
	d.advance(now)
	b := d.buckets[key]
	if b == nil || b.limit == nil {
		return View{}, false
	}
	v := View{ID: b.id, Limit: *b.limit, Rate: b.limit.rate(), InForce: b.inForce(), Lost: b.lostRate()}
	for _, l := range b.lost {
		if l.unknown {
			v.Learning = max(v.Learning, l.until-d.now)
		} else if l.rate > 0 {
			v.LostFor = max(v.LostFor, l.until-d.now)
		}
	}
	for i := range b.shares {
		s := &b.shares[i]
		if s.stream.closed { // to be lost at the next division
			v.Lost += int64(s.high)
			v.LostFor = max(v.LostFor, d.lostUntil(s)-d.now)
			continue
		}
		v.Unconfirmed += int64(s.high) - int64(min(s.high, s.told))
		v.Holders = append(v.Holders, HolderView{
			Holder: s.stream.holder, Demand: float64(s.demand), Share: s.told, Held: s.high,
			Assigned: s.state&assigned != 0, Confirmed: s.state&(assigned|settling) == assigned,
		})
	}
	return v, true
}

// Brief is the result of [Divider.Brief].
type Brief struct {
	Bucket Bucket
	// Limit is the one that the bucket was reported with last.
	Limit *Limit
	// Rate and InForce are as in [View], Demand that of all holders.
	Rate, InForce int64
	Demand        float64
	Shares        int // number of shares
}

// Brief returns what is known of a bucket, in short. ok is false if the bucket is not divided.
func (d *Divider) Brief(key Bucket) (brief Brief, ok bool) {
	b := d.buckets[key]
	if b == nil || b.limit == nil || b.limit.Verdict != Divide {
		return Brief{}, false
	}
	brief = Brief{Bucket: key, Limit: b.limit, Rate: b.limit.rate(), InForce: b.inForce(), Shares: len(b.shares)}
	for i := range b.shares {
		brief.Demand += float64(b.shares[i].demand)
	}
	return brief, true
}

// Buckets goes through the buckets that are known.
func (d *Divider) Buckets() iter.Seq[Bucket] { return maps.Keys(d.buckets) }

// Counts are for metrics. Those in the first line are of now, others since the divider was made.
type Counts struct {
	Streams, Buckets, Shares int
	// Bytes is the memory for all buckets, as [Options].MaxBytes counts it.
	Bytes int
	// NoRoom are reports beyond a bound; Abandoned buckets that were idle or have no rule any more, Asked
	// those that were abandoned to see whether they have requests; TakenOver shares that a peer which
	// came back took over; Divisions how often a bucket was divided.
	NoRoom, Abandoned, Asked, TakenOver, Divisions uint64
}

// Counts returns them.
func (d *Divider) Counts() Counts {
	c := d.counts
	c.Streams, c.Buckets, c.Shares = len(d.streams), len(d.buckets), d.shares
	c.Bytes = d.bytes
	return c
}

// Each calls f with buckets that a holder has reported and not abandoned, at most most of them. It begins with left =
// [math.MaxInt], and returns the value of left for the next call, 0 after the last bucket. Events between two calls make it
// miss none of the buckets that the holder had at the first one, but it may repeat some. f must not call the divider's
// methods except [Divider.Relimit].
func (d *Divider) Each(h Holder, left, most int, f func(key Bucket, id string)) int {
	s := d.streams[h]
	if s == nil {
		return 0
	}
	// A bucket that is removed is replaced by the last one, so going downwards misses none.
	left = min(left, len(s.shares))
	for end := max(left-most, 0); left > end; left-- {
		f(s.shares[left-1].key, s.shares[left-1].id)
	}
	return left
}
