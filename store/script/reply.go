package script

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// A message is the arguments of one run of the script.
type message struct {
	Keys  []string
	Args  []string
	index map[string]int
	found map[int]*limiter.State // rings, which the reply has only once
}

// clear empties m. at is the time of the run, 0 for the server's clock.
func (m *message) clear(at limiter.Time) {
	if m.index == nil {
		m.index = map[string]int{}
		m.found = map[int]*limiter.State{}
	}
	clear(m.index)
	clear(m.found)
	clear(m.Keys)
	clear(m.Args)
	m.Keys = m.Keys[:0]
	m.Args = append(m.Args[:0], "", "")
	if at != 0 {
		m.Args[0] = strconv.FormatInt(int64(at)/int64(time.Second), 10)
		m.Args[1] = strconv.FormatInt(int64(at)%int64(time.Second), 10)
	}
}

// add appends c to m. c must not change while m is used.
func (m *message) add(c *Call) {
	base := len(m.Args)
	m.Args = append(m.Args, c.args...)
	for i := range c.charges {
		at := &c.charges[i]
		name := c.Keys[at.key]
		m.Args[base+at.keyArg] = numeral(m.keyNumber(name))
		if at.holdKey > 0 {
			m.Args[base+at.companionArg] = numeral(m.keyNumber(c.Keys[at.holdKey]))
		}
		if at.penaltyKey > 0 {
			m.Args[base+at.companionArg] = numeral(m.keyNumber(c.Keys[at.penaltyKey]))
		}
	}
}

// keyNumber returns the number of a key, which it adds if necessary.
func (m *message) keyNumber(name string) int {
	number, known := m.index[name]
	if !known {
		m.Keys = append(m.Keys, name)
		number = len(m.Keys)
		m.index[name] = number
	}
	return number
}

// numeral returns a small number in decimal, without allocating.
func numeral(n int) string {
	if n < len(numerals) {
		return numerals[n]
	}
	return strconv.Itoa(n)
}

var numerals = func() (all [512]string) {
	for n := range all {
		all[n] = strconv.Itoa(n)
	}
	return all
}()

// A reply is read from front to back, once for each call of its message, in order. The first value
// that is not as expected sets Err, and all values after it are read as 0.
type reply struct {
	raw      resp.Reply
	at       int // index of the next value in raw
	Now      limiter.Time
	Admitted int64
	Err      error
}

var errReply = redis.BadReply("read the script's reply: ends too soon")

// begin reads the part of the reply that precedes the calls. It returns the error that the server
// sent instead, or why the reply is invalid.
func (r *reply) begin() error {
	r.at = 1
	r.Err = redis.ReplyError(&r.raw)
	if r.Err == nil && r.raw.Kind(0) != resp.Array {
		r.Err = redis.BadReply("read the script's reply: %s, want an array", redis.Describe(&r.raw, 0))
	}
	r.Now = r.readTime()
	r.Admitted = r.next()
	return r.Err
}

// Unread returns the number of unread values.
func (r *reply) Unread() int { return r.raw.Len() - r.at }

// nextIs reports whether the next value is of a kind.
func (r *reply) nextIs(kind resp.Kind) bool {
	return r.Err == nil && r.Unread() > 0 && r.raw.Kind(r.at) == kind
}

// next returns the next value, a number.
func (r *reply) next() int64 {
	switch {
	case r.nextIs(resp.Integer):
		r.at++
		return r.raw.Int(r.at - 1)
	case r.Err != nil:
	case r.Unread() <= 0:
		r.Err = errReply
	default:
		r.Err = redis.BadReply("read the script's reply: element %d is %s, want a number", r.at,
			redis.Describe(&r.raw, r.at))
	}
	return 0
}

// readText returns the next value, which must be text.
func (r *reply) readText() string {
	r.at++
	return r.raw.Text(r.at - 1)
}

// readTime reads a time: seconds and nanoseconds.
func (r *reply) readTime() limiter.Time {
	seconds := r.next()
	nanos := r.next()
	if seconds > math.MaxInt64/int64(time.Second)-1 || seconds < 0 || nanos < 0 || nanos >= int64(time.Second) {
		r.Err = fmt.Errorf("read the script's reply: %d seconds and %d nanoseconds since 1970 are not a time", seconds,
			nanos)
		return 0
	}
	return limiter.Time(seconds*int64(time.Second) + nanos)
}

// Read reads the states that the charges of c, which is in m, found. It returns a [ForeignError] if
// the script has not decided c.
func (r *reply) Read(m *message, c *Call) error {
	n := c.Size()
	c.Found = slices.Grow(c.Found[:0], n)[:n]
	if r.nextIs(resp.Integer) && r.raw.Int(r.at) == -1 {
		r.next()
		key := r.next()
		if key < 1 || key > int64(len(m.Keys)) {
			return errReply
		}
		return &ForeignError{m.Keys[key-1], errForeign}
	}
	for i := range n {
		s := &c.Found[i]
		*s = limiter.State{Counts: s.Counts[:0]}
		if at := &c.charges[i]; at.first {
			r.readCounter(m, c, at, s)
		}
	}
	for i := range n {
		if c.charges[i].holdKey > 0 {
			r.readReserved(&c.Found[i])
		}
		if c.charges[i].penaltyKey > 0 {
			r.readPenalty(&c.Found[i])
		}
		switch at := &c.charges[i]; at.algorithm {
		case limiter.SlidingLog:
			c.Found[i].Stamp = r.readTime()
		case limiter.Concurrency:
			c.Found[i].Lease = r.readLease()
		case limiter.FixedWindow, limiter.SlidingWindow, limiter.TokenBucket, limiter.LeakyBucket: // nothing more
		}
	}
	for i := range c.charges[n:] {
		set := &c.charges[n+i]
		if set.algorithm != limiter.SlidingLog {
			continue
		}
		if rest := r.readTime(); rest > 0 {
			c.Found[set.refund].RefundStamp = rest
		}
	}
	return r.Err
}

// readCounter reads the counter's state, which is sent for the first charge of a call on it.
func (r *reply) readCounter(m *message, c *Call, at *charge, s *limiter.State) {
	switch at.algorithm {
	case limiter.SlidingWindow:
		r.readRing(m, c, at, s)
	case limiter.SlidingLog:
		s.Hits = uint64(max(r.next(), 0))
		s.Time = r.readTime()
	case limiter.TokenBucket, limiter.LeakyBucket:
		seconds := min(max(r.next(), 0), math.MaxInt64/int64(time.Second)-1)
		parts := min(max(r.next(), 0), partsOfSecond-1)
		s.Time = limiter.Time(seconds*int64(time.Second) + parts/16)
		s.Sixteenths = uint8(parts & 15)
		if at.life > 0 {
			s.AdvanceTAT(r.Now + at.life) // as the script does
		}
	case limiter.Concurrency:
		s.Hits = uint64(max(r.next(), 0))
	case limiter.FixedWindow:
		s.Hits = uint64(max(r.next(), 0))
		s.Time = at.end
	}
}

// readRing reads a ring: the value of its key; or, if an earlier call has read that, the hits of
// the newest sub-window.
func (r *reply) readRing(m *message, c *Call, at *charge, s *limiter.State) {
	number := m.index[c.Keys[at.key]]
	if r.nextIs(resp.Bulk) {
		known, err := parseRing(r.readText(), at.ring.K())
		if err != nil {
			r.Err = fmt.Errorf("read the counter %s: %w", c.Keys[at.key], err)
			return
		}
		m.found[number] = &known
		s.SubWindow = known.SubWindow
		s.Counts = append(s.Counts, known.Counts...)
		return
	}
	newest := r.next()
	known := m.found[number]
	if known == nil {
		r.Err = cmp.Or(r.Err, errReply)
		return
	}
	s.SubWindow, s.Counts = r.advance(at, known, s.Counts)
	s.Counts[0] = uint32(min(max(newest, 0), math.MaxUint32))
}

// advance returns the ring known at the time of the reply.
func (r *reply) advance(at *charge, known *limiter.State, counts []uint32) (number int64, _ []uint32) {
	number = at.ring.Number(r.Now)
	gone := number - known.SubWindow
	switch late := -gone; {
	case len(known.Counts) == 0, at.ring.ClockSetBack(known.SubWindow, r.Now):
		return number, append(counts, make([]uint32, at.ring.K()+1)...)
	case late > 0:
		return known.SubWindow, append(counts, known.Counts...)
	}
	for x := range at.ring.K() + 1 {
		n := uint32(0)
		if x >= gone {
			n = known.Counts[x-gone]
		}
		counts = append(counts, n)
	}
	return number, counts
}

// parseRing parses a ring with k sub-windows besides the newest: the number of that as a double,
// and the counts, each at its number modulo k+1.
func parseRing(text string, k int64) (s limiter.State, err error) {
	if text == "" {
		return s, nil
	}
	if int64(len(text)) != 8+4*(k+1) {
		return s, fmt.Errorf("%d bytes: a window with %d sub-windows has %d", len(text), k, 8+4*(k+1))
	}
	b := []byte(text)
	number := math.Float64frombits(binary.LittleEndian.Uint64(b))
	if !(number >= 0 && number <= 1<<53) { // also false for NaN
		return s, fmt.Errorf("the sub-window %v: must be 0 to 2^53", number)
	}
	s.SubWindow = int64(number)
	for x := s.SubWindow; x >= s.SubWindow-k; x-- {
		slot := (x%(k+1) + k + 1) % (k + 1)
		s.Counts = append(s.Counts, binary.LittleEndian.Uint32(b[8+4*slot:]))
	}
	return s, nil
}

// CountAdmitted returns the number of admitted charges of b, as the script counts them.
func CountAdmitted(b *limiter.Batch) (n int64) {
	for i := range b.Charges {
		if d := &b.Decisions[i]; !b.Charges[i].Refund && !d.Over && d.Charged > 0 && !b.Stored().Settled(i) {
			n++
		}
	}
	return n
}
