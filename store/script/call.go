package script

import (
	"slices"
	"strconv"
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
	end          limiter.Time // end of a fixed window
	ring         limiter.Ring
	hits         int64        // hits of a native command
	counted      bool         // the last reply confirms that hits are counted
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
	c.charges = c.charges[:0]
	c.Keys = c.Keys[:0]
	c.args = c.args[:0]
	c.Native = false
	c.Cost = 0
	c.buf = c.buf[:0]
	c.setOffs = 0
	c.Found = c.Found[:0]
	c.Err = nil
	c.LacksExpiry = false
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// AppendName appends the name of a counter of p at the time now: name, and the start of a fixed
// window.
func AppendName(to []byte, now limiter.Time, p *limiter.Policy, name []byte) []byte {
	to = append(to, name...)
	if IsFixed(p) {
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

// Size returns the number of charges, without set-offs.
func (c *Call) Size() int { return len(c.charges) - c.setOffs }

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
