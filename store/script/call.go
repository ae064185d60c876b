package script

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/sluice-ratelimit/sluice/limiter"
)

const (
	// maxHits caps the hits of counts. No limit is as high, and sums of counts and hits stay below
	// 2^53, which Lua's numbers represent exactly.
	maxHits = 1 << 33

	// keyMargin is how long a key with a window's start in its name outlives the window, without
	// jitter. A request that was sent in the window may arrive up to Options.Timeout after it, and
	// must find the count.
	keyMargin = limiter.Time(time.Second)

	// alwaysRoom and neverRoom are levels above and below all levels of a bucket.
	alwaysRoom = 1 << 62
	neverRoom  = -1
)

// A Call is the charges of one request, encoded as arguments of the script or as commands. Its
// strings are in its own memory, so it outlives the batch that it was made from.
type Call struct {
	charges    []charge // charges of the request, followed by its set-offs
	setOffs    int      // number of these
	Keys       []string // names of the counters and their companions
	args       []string // arguments; numbers of keys are filled in later: see charge.keyArg
	Native     bool     // args are native commands instead
	ClockAhead int64    // seconds by which the server's clock, which expires keys, is ahead of the counters'. Set before encoding
	Negative   bool     // a count was below 0 before a native command: see EncodeRecount
	Cost       time.Duration
	buf        []byte

	Found       []limiter.State // state found by each charge, from the reply
	Err         error           // why Found is not known
	LacksExpiry bool            // hits of a native call are counted, but a key may lack its expiry because its slot has moved
}

// A charge describes one charge of a call, for reading its part of the reply.
type charge struct {
	algorithm    limiter.Algorithm
	key          int          // index in Call.Keys
	first        bool         // first charge of the call on its counter
	keyArg       int          // index in Call.args of the key's number
	nameLen      int          // length of the counter's name without the start of a fixed window
	end          limiter.Time // end of a fixed window
	ring         limiter.Ring
	hits         int64        // hits of a native command
	counted      bool         // the last reply confirms that hits are counted
	failed       bool         // the last reply lacks the state of the counter
	missing      int64        // hits that EncodeRecount adds
	lease        uint64       // the proposed lease
	holdKey      int          // index in Call.Keys of the reservations; 0 for none
	companionArg int          // index in Call.args of the number of holdKey or penaltyKey
	refund       int          // index of the refund of a set-off
	life         limiter.Time // how long a block of a bucket lasts
	penaltyKey   int          // index in Call.Keys; 0 for none
}

// Reset empties c and keeps its memory.
func (c *Call) Reset() {
	clear(c.Keys)
	clear(c.args)
	c.charges, c.Keys, c.args, c.Native, c.Negative, c.Cost, c.buf = c.charges[:0], c.Keys[:0], c.args[:0], false, false, 0, c.buf[:0]
	c.setOffs = 0
	c.Found, c.Err, c.LacksExpiry = c.Found[:0], nil, false
}

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
			c.args = append(c.args, c.number(int64(from.Group)), modes[from.Mode&3])
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

var modes = [4]string{limiter.Enforce: "e", limiter.Shadow: "s", limiter.Quota: "q", limiter.Watch: "s"}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// appendCharge appends charge i of b with the given hits.
func (c *Call) appendCharge(now limiter.Time, b *limiter.Batch, i int, hits uint64, name []byte, jitter time.Duration) {
	from := &b.Charges[i]
	p := from.Policy
	at := charge{algorithm: p.Algorithm, nameLen: len(name)}
	act := "t"
	switch {
	case from.Refund && p.Reserve != nil:
		act, hits = "s", 0
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
		start, second := len(c.buf), int64(now)/int64(time.Second)
		c.buf = strconv.AppendInt(c.buf, first, 10)
		for _, edge := range starts {
			c.buf = strconv.AppendInt(append(c.buf, ' '), edge, 10)
		}
		windows := c.tail(start)
		next := slices.IndexFunc(starts, func(edge int64) bool { return edge > second }) + 1 // its end is after all hits of now
		c.args = append(c.args, windows, "0", c.number(r.K()), c.number(starts[next]-second+1))
		return
	}
	length, k := int64(r.Length()), r.K()
	c.args = append(c.args, c.number(length/int64(time.Second)), c.number(length%int64(time.Second)),
		c.number(k), c.number((length/int64(time.Second)+1)*(k+2)+1))
}

// AppendName appends the name of a counter of p at the time now: name, and the start of a fixed
// window.
func AppendName(to []byte, now limiter.Time, p *limiter.Policy, name []byte) []byte {
	if to = append(to, name...); IsFixed(p) {
		to = strconv.AppendInt(to, int64(p.WindowStart(now))/int64(time.Second), 10)
	}
	return to
}

// A form is how counters of an algorithm are stored.
type form struct {
	letter      string // identifies the algorithm to the scripts
	endsInStart bool   // the counter's name ends in the start of its window
}

var forms = [...]form{
	limiter.FixedWindow: {"f", true}, limiter.SlidingWindow: {"r", false}, limiter.SlidingLog: {"l", false},
	limiter.TokenBucket: {"b", false}, limiter.LeakyBucket: {"b", false},
	limiter.Concurrency: {"p", false},
}

var _ [limiter.Algorithms]form = forms // each algorithm has one

// appendCounts appends the hits and the limit of an algorithm that counts.
func (c *Call) appendCounts(hits uint64, limit uint32) {
	c.args = append(c.args, c.number(int64(min(hits, maxHits))), c.number(int64(limit)))
}

// appendBucket appends the arguments of a bucket: whether it has sixteenths, the cost of the hits,
// the highest level that they may reach, the level at which debt ends or from which on hits are
// delayed, and the highest level.
func (c *Call) appendBucket(from *limiter.Charge, hits uint64, budget time.Duration) {
	p, k := from.Policy, from.Policy.Bucket()
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
		maxLevel, mark = neverRoom, neverRoom
	case k.Step == 0 && !from.Refund:
		maxLevel = alwaysRoom
	case p.CountRefused:
		mark = int64(k.Full + k.Debt) //nolint:gosec // as above
	case leaky:
		mark = int64(k.Full) //nolint:gosec // as above
	}
	c.args = append(c.args, flag(k.Fine))
	c.appendTicks(int64(k.Need(hits)), k.Fine) //nolint:gosec // at most 2^63-1
	c.appendTicks(maxLevel, k.Fine)
	c.appendTicks(mark, k.Fine)
	c.appendTicks(int64(k.MaxLevel), k.Fine) //nolint:gosec // below 2^62
}

// EncodeCancel encodes the cancellation of charge i, which is delayed.
func (c *Call) EncodeCancel(now limiter.Time, b *limiter.Batch, i int, name []byte) {
	k, after := b.Charges[i].Policy.Bucket(), b.Stored().BucketAfter(now, i)
	c.Reset()
	key, _ := c.keyIndex(c.text(name))
	c.Cost = CostOf(b.Charges[i].Policy, 0)
	c.charges = append(c.charges, charge{algorithm: limiter.LeakyBucket, key: key, first: true, keyArg: len(c.args) + 1})
	c.args = append(c.args, "b", "", "x", flag(k.Fine))
	c.appendTicks(int64(k.Need(b.Decisions[i].Charged)), k.Fine) //nolint:gosec // at most 2^63-1
	c.appendAmount(instant(after.Time, after.Sixteenths&15))
	c.args = append(c.args, "0", "0")
	c.appendTicks(int64(k.MaxLevel), k.Fine) //nolint:gosec // below 2^62
}

// appendTicks appends ticks, of 1/16 ns each if fine is set, as seconds and nanoseconds.
func (c *Call) appendTicks(ticks int64, fine bool) {
	if ticks < 0 {
		c.args = append(c.args, "-1", "0")
		return
	}
	c.appendAmount(amountOf(uint64(ticks), fine && ticks != alwaysRoom))
}

// appendAmount appends a as seconds and nanoseconds.
func (c *Call) appendAmount(a amount) {
	c.args = append(c.args, c.number(a.seconds))
	start := len(c.buf)
	c.buf = append(strconv.AppendInt(c.buf, a.parts/16, 10), sixteenths[a.parts%16]...)
	c.args = append(c.args, c.tail(start))
}

var sixteenths = [16]string{
	"", ".0625", ".125", ".1875", ".25", ".3125", ".375", ".4375",
	".5", ".5625", ".625", ".6875", ".75", ".8125", ".875", ".9375",
}

// Name returns the name of the counter of charge i, with the start of a fixed window. It is valid
// until c is reset.
func (c *Call) Name(i int) string { return c.Keys[c.charges[i].key] }

// NameWithoutStart returns a copy of the name of the counter of charge i, without the start of a
// fixed window.
func (c *Call) NameWithoutStart(i int) []byte { return []byte(c.Name(i)[:c.charges[i].nameLen]) }

// Size returns the number of charges, without set-offs.
func (c *Call) Size() int { return len(c.charges) - c.setOffs }

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
	mark, n := at.keyArg+7, len(c.args) // see appendBucket
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

// keyIndex returns the index of a counter in c.Keys. If the counter is new, keyIndex adds it, and
// first is true.
func (c *Call) keyIndex(name string) (index int, first bool) {
	if index = slices.Index(c.Keys, name); index >= 0 {
		return index, false
	}
	c.Keys = append(c.Keys, name)
	return len(c.Keys) - 1, true
}

// number returns n in decimal.
func (c *Call) number(n int64) string {
	if n >= 0 && n < 10 {
		return "0123456789"[n : n+1]
	}
	start := len(c.buf)
	c.buf = strconv.AppendInt(c.buf, n, 10)
	return c.tail(start)
}

// text returns a copy of b.
func (c *Call) text(b []byte) string {
	start := len(c.buf)
	c.buf = append(c.buf, b...)
	return c.tail(start)
}

// tail returns c.buf[start:] as a string, which is valid until c is reset, even if c.buf is
// reallocated.
func (c *Call) tail(start int) string {
	b := c.buf[start:]
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // b is not written again before
}

// IsFixed reports whether the names of p's counters end in the start of a window.
func IsFixed(p *limiter.Policy) bool { return forms[p.Algorithm].endsInStart }
