package script

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Encode encodes the charges of b. Fixed windows are those of the time now; their names lack the
// start. jitter is the maximum extra TTL of the key of a fixed window.
//
// Each set-off becomes a charge, too: a refund that is made last, if the hits that it was set off
// against do not count.
func (c *Call) Encode(now limiter.Time, b *limiter.Batch, names [][]byte, jitter time.Duration) {
	c.Reset()
	b.Stored().OffsetRefunds()
	setOffs := b.Stored().Offsets()
	if n := len(b.Charges); n > 1 {
		c.args = append(c.args, "g", c.number(int64(n+len(setOffs))), flag(b.QuotaPass))
	}
	for i := range b.Charges {
		from := &b.Charges[i]
		if len(b.Charges) > 1 {
			c.args = append(c.args, c.number(int64(from.Group)), modes[from.Mode&3][from.Choice])
		}
		c.appendCharge(now, b, i, b.Stored().Hits(i), names[i], jitter)
	}
	for _, set := range setOffs {
		c.args = append(c.args, c.number(int64(set.Charge+1)), "o")
		c.appendCharge(now, b, set.Refund, set.Hits, names[set.Refund], jitter)
		c.charges[len(c.charges)-1].refund = set.Refund
	}
	c.setOffs = len(setOffs)
}

// modes are the modes of charges, by their choice.
var modes = [4][3]string{
	limiter.Enforce: {"e", "e1", "e2"}, limiter.Shadow: {"s", "s1", "s2"}, limiter.Quota: {"q", "q1", "q2"}, limiter.Watch: {"s", "s", "s"},
}

// appendCharge appends charge i of b with the given hits.
func (c *Call) appendCharge(now limiter.Time, b *limiter.Batch, i int, hits uint64, name []byte, jitter time.Duration) {
	from := &b.Charges[i]
	p := from.Policy
	at := charge{algorithm: p.Algorithm}
	act := "t"
	switch {
	case from.Refund && p.Reserve != nil:
		act = "s"
		hits = 0
	case from.Reserve:
		act = "h"
	case from.Refund:
		act = "u"
	case p.CountRefused:
		act = "c"
	case hits == 0:
		act = "k"
	}
	start := len(c.buf)
	c.buf = AppendName(c.buf, now, p, name)
	at.key, at.first = c.keyIndex(c.tail(start))
	at.keyArg = len(c.args) + 1
	if from.Penalises() {
		act = strings.ToUpper(act)
	}
	c.args = append(c.args, forms[p.Algorithm].letter, "", act)
	switch p.Algorithm {
	case limiter.SlidingWindow:
		at.ring = p.Ring()
		c.appendCounts(hits, p.Limit)
		c.appendRing(now, at.ring)
	case limiter.SlidingLog:
		c.appendCounts(hits, min(p.Limit, limiter.MaxLog))
		c.args = append(c.args, c.number(int64(p.Window/time.Second)))
	case limiter.TokenBucket, limiter.LeakyBucket:
		c.appendBucket(from, hits, b.Budget)
	case limiter.Concurrency:
		c.appendPermit(&at, from, hits)
	case limiter.FixedWindow:
		at.end = p.WindowEnd(now)
		c.appendCounts(hits, p.Limit)
		c.args = append(c.args, c.number(c.expires(&at, p, jitter)))
	}
	if act == "s" || act == "h" {
		c.appendReserve(&at, from, name)
	}
	if from.Penalises() {
		c.appendPenalty(&at, p, name)
	}
	if at.first {
		c.Cost += CostOf(p, hits)
	} else {
		c.Cost += CostOfRepeat + CostOfHits(p, hits)
	}
	c.charges = append(c.charges, at)
}

// appendRing appends the sub-windows: their length in seconds and nanoseconds, or the windows of a
// calendar and 0; the number of sub-windows that count besides the newest; and the lifetime of the
// key in seconds. The windows are the number of the first one, the start of each, and the end of
// the last.
func (c *Call) appendRing(now limiter.Time, r limiter.Ring) {
	if r.Calendar() != nil {
		first, starts := r.Calendar().WindowsAround(now)
		start := len(c.buf)
		second := int64(now) / int64(time.Second)
		c.buf = strconv.AppendInt(c.buf, first, 10)
		for _, edge := range starts {
			c.buf = strconv.AppendInt(append(c.buf, ' '), edge, 10)
		}
		windows := c.tail(start)
		next := slices.IndexFunc(starts, func(edge int64) bool { return edge > second }) + 1 // its end is after all hits of now
		c.args = append(c.args, windows, "0", c.number(r.K()), c.number(starts[next]-second+1))
		return
	}
	length := int64(r.Length())
	k := r.K()
	c.args = append(c.args, c.number(length/int64(time.Second)), c.number(length%int64(time.Second)),
		c.number(k), c.number((length/int64(time.Second)+1)*(k+2)+1))
}

// appendCounts appends the hits and the limit of an algorithm that counts.
func (c *Call) appendCounts(hits uint64, limit uint32) {
	c.args = append(c.args, c.number(int64(min(hits, maxHits))), c.number(int64(limit)))
}

// appendBucket appends the arguments of a bucket: whether it has sixteenths, the cost of the hits,
// the highest level that they may reach, the level at which debt ends or from which on hits are
// delayed, and the highest level.
func (c *Call) appendBucket(from *limiter.Charge, hits uint64, budget time.Duration) {
	p := from.Policy
	k := from.Policy.Bucket()
	leaky := p.Algorithm == limiter.LeakyBucket
	maxLevel, mark := int64(k.Full+k.DelayWithin(budget)), int64(alwaysRoom) //nolint:gosec // levels are below 2^62
	switch {
	case from.Refund && p.Reserve != nil:
		maxLevel = int64(k.Full) //nolint:gosec // as above
	case from.Refund && leaky, from.Refund && k.Step == 0:
		maxLevel = int64(k.Full) //nolint:gosec // as above
	case from.Refund:
		maxLevel = alwaysRoom
	case hits == 0:
		maxLevel = int64(k.Full + k.Delay) //nolint:gosec // as above
	}
	switch {
	case p.Reserve != nil && from.Refund: // a cost is charged whatever room there is
		mark = int64(k.Full + k.Debt) //nolint:gosec // as above
	case k.Step == 0 && !from.Refund && hits > 0:
		maxLevel = neverRoom
		mark = neverRoom
	case k.Step == 0 && !from.Refund:
		maxLevel = alwaysRoom
	case p.CountRefused:
		mark = int64(k.Full + k.Debt) //nolint:gosec // as above
	case leaky:
		mark = int64(k.Full) //nolint:gosec // as above
	}
	c.args = append(c.args, flag(k.Fine()))
	c.appendTicks(int64(k.Need(hits)), k.Fine()) //nolint:gosec // at most 2^63-1
	c.appendTicks(maxLevel, k.Fine())
	c.appendTicks(mark, k.Fine())
	c.appendTicks(int64(k.MaxLevel), k.Fine()) //nolint:gosec // below 2^62
}

// EncodeCancel encodes the cancellation of charge i, which is delayed.
func (c *Call) EncodeCancel(now limiter.Time, b *limiter.Batch, i int, name []byte) {
	k := b.Charges[i].Policy.Bucket()
	after := b.Stored().BucketAfter(now, i)
	c.Reset()
	key, _ := c.keyIndex(c.text(name))
	c.Cost = CostOf(b.Charges[i].Policy, 0)
	c.charges = append(c.charges,
		charge{algorithm: limiter.LeakyBucket, key: key, first: true, keyArg: len(c.args) + 1})
	c.args = append(c.args, "b", "", "x", flag(k.Fine()))
	c.appendTicks(int64(k.Need(b.Decisions[i].Charged)), k.Fine()) //nolint:gosec // at most 2^63-1
	c.appendAmount(instant(after.Time, after.Sixteenths&15))
	c.args = append(c.args, "0", "0")
	c.appendTicks(int64(k.MaxLevel), k.Fine()) //nolint:gosec // below 2^62
}

// SetReset changes the only charge to a reset of its counter.
func (c *Call) SetReset() {
	switch act := &c.args[c.charges[0].keyArg+1]; {
	case *act == "h":
		*act = "y"
	case c.charges[0].penaltyKey > 0:
		*act = "Z"
	default:
		*act = "z"
	}
}

// SetBlock makes the only charge, of a bucket, a block: its hits count as if they were used when the
// given time has passed.
func (c *Call) SetBlock(life time.Duration) {
	at := &c.charges[0]
	at.life = limiter.Time(life)
	c.args[at.keyArg+1] = "a"
	mark := at.keyArg + 7
	n := len(c.args) // see appendBucket
	c.appendAmount(instant(at.life, 0))
	copy(c.args[mark:], c.args[n:])
	c.args = c.args[:n]
}

// SetReturn makes the only charge, a refund of a sliding window, the return of hits that were
// charged in the given sub-window. They are taken back only there.
func (c *Call) SetReturn(subWindow int64) {
	at := c.charges[0].keyArg
	c.args[at+1] = "r"
	c.args[at+3] = c.number(subWindow) // in place of the limit
}
