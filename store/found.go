package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// A message is several calls for one run of the script.
type message struct {
	keys  []string
	args  []string
	index map[string]int
	found map[int]*limiter.State // rings, of which the reply tells the whole but once
}

// clear empties m for the time at, or for the store's own if that is 0.
func (m *message) clear(at limiter.Time) {
	if m.index == nil {
		m.index, m.found = map[string]int{}, map[int]*limiter.State{}
	}
	clear(m.index)
	clear(m.found)
	clear(m.keys)
	clear(m.args)
	m.keys, m.args = m.keys[:0], append(m.args[:0], "", "")
	if at != 0 {
		m.args[0] = strconv.FormatInt(int64(at)/int64(time.Second), 10)
		m.args[1] = strconv.FormatInt(int64(at)%int64(time.Second), 10)
	}
}

// add appends c to m. c must not change while m is used.
func (m *message) add(c *call) {
	base := len(m.args)
	m.args = append(m.args, c.args...)
	for i := range c.charges {
		at := &c.charges[i]
		name := c.keys[at.key]
		number, known := m.index[name]
		if !known {
			m.keys = append(m.keys, name)
			number = len(m.keys)
			m.index[name] = number
		}
		m.args[base+at.place] = numeral(number)
	}
}

// numeral returns a small number as text, without allocating.
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

// A value is one element of the script's reply: text, or a number.
type value struct {
	text   string
	number int64
	isText bool
}

// A reply is read from front to back, once for each call of its message, in order.
type reply struct {
	raw      resp.Reply // which values are of
	values   []value
	now      limiter.Time
	admitted int64
}

var errReply = errors.New("read the script's reply: ends too soon")

// begin reads what the reply says of all calls.
func (r *reply) begin() error {
	if len(r.values) < 3 {
		return errReply
	}
	r.now = limiter.Time(r.values[0].number*int64(time.Second) + r.values[1].number)
	r.admitted = r.values[2].number
	r.values = r.values[3:]
	return nil
}

// next returns the next number.
func (r *reply) next() (int64, error) {
	if len(r.values) == 0 || r.values[0].isText {
		return 0, errReply
	}
	n := r.values[0].number
	r.values = r.values[1:]
	return n, nil
}

// time returns the next two numbers, seconds and nanoseconds, as a time.
func (r *reply) time() (limiter.Time, error) {
	seconds, err := r.next()
	if err != nil {
		return 0, err
	}
	nanos, err := r.next()
	if err != nil {
		return 0, err
	}
	if seconds > math.MaxInt64/int64(time.Second)-1 || seconds < 0 {
		return 0, fmt.Errorf("read the script's reply: %d seconds since 1970 are no time", seconds)
	}
	return limiter.Time(seconds*int64(time.Second) + nanos), nil
}

// read makes found what the charges of c, which is in m, found. It keeps the memory of found. It
// returns a [foreignError] if the script has left c alone.
func (r *reply) read(m *message, c *call, found []limiter.State) ([]limiter.State, error) {
	found = slices.Grow(found[:0], len(c.charges))[:len(c.charges)]
	if len(r.values) > 1 && r.values[0] == (value{number: -1}) {
		key := r.values[1].number
		r.values = r.values[2:]
		if key < 1 || key > int64(len(m.keys)) {
			return found, errReply
		}
		return found, &foreignError{m.keys[key-1], errForeign}
	}
	for i := range c.charges {
		at, s := &c.charges[i], &found[i]
		*s = limiter.State{Counts: s.Counts[:0]}
		if !at.first {
			continue
		}
		if err := r.counter(m, c, at, s); err != nil {
			return found, err
		}
	}
	for i := range c.charges {
		if c.charges[i].algorithm != limiter.SlidingLog {
			continue
		}
		stamp, err := r.time()
		if err != nil {
			return found, err
		}
		found[i].Stamp = stamp
	}
	return found, nil
}

// counter reads what a charge says that is the first of its call on a counter.
func (r *reply) counter(m *message, c *call, at *charge, s *limiter.State) (err error) {
	switch at.algorithm {
	case limiter.SlidingWindow:
		return r.ring(m, c, at, s)
	case limiter.SlidingLog:
		hits, err := r.next()
		if err != nil {
			return err
		}
		s.Hits = uint64(max(hits, 0))
		s.Time, err = r.time()
		return err
	case limiter.TokenBucket, limiter.LeakyBucket:
		seconds, err := r.next()
		if err != nil {
			return err
		}
		parts, err := r.next()
		if err != nil {
			return err
		}
		s.Time = limiter.Time(seconds*int64(time.Second) + parts/16)
		s.Sixteenths = uint8(parts & 15)
		return nil
	default:
		hits, err := r.next()
		s.Hits, s.Time = uint64(max(hits, 0)), at.end
		return err
	}
}

// ring reads a ring: the value of its key, or, of one that the reply has told already, the hits
// of its newest sub-window.
func (r *reply) ring(m *message, c *call, at *charge, s *limiter.State) error {
	if len(r.values) == 0 {
		return errReply
	}
	v, number := r.values[0], m.index[c.keys[at.key]]
	r.values = r.values[1:]
	if v.isText {
		told, err := parseRing(v.text, at.k)
		if err != nil {
			return fmt.Errorf("read the counter %s: %w", c.keys[at.key], err)
		}
		m.found[number] = &told
		s.Number, s.Counts = told.Number, append(s.Counts, told.Counts...)
		return nil
	}
	told := m.found[number]
	if told == nil {
		return errReply
	}
	s.Number, s.Counts = r.advance(at, told, s.Counts)
	s.Counts[0] = uint32(v.number) //nolint:gosec // what a count holds
	return nil
}

// advance returns the ring that told is at the time of the reply.
func (r *reply) advance(at *charge, told *limiter.State, counts []uint32) (number int64, _ []uint32) {
	number = int64(r.now) / at.length
	gone := number - told.Number
	switch late := -gone; {
	case len(told.Counts) == 0, late > 0 && told.Number*at.length-int64(r.now) > maxLateNanos: // the clock was set back
		return number, append(counts, make([]uint32, at.k+1)...)
	case late > 0:
		return told.Number, append(counts, told.Counts...)
	}
	for x := range at.k + 1 {
		n := uint32(0)
		if x >= gone {
			n = told.Counts[x-gone]
		}
		counts = append(counts, n)
	}
	return number, counts
}

// maxLateNanos is how late a time is at most. What is later yet comes after the clock was set back.
const maxLateNanos = int64(365 * 24 * time.Hour)

// parseRing reads the value of a ring with k sub-windows beside the newest: its number as a
// double, and the counts of it and of those, each at its number modulo k+1.
func parseRing(text string, k int64) (s limiter.State, err error) {
	if text == "" {
		return s, nil
	}
	if int64(len(text)) != 8+4*(k+1) {
		return s, fmt.Errorf("%d bytes: a window with %d sub-windows has %d", len(text), k, 8+4*(k+1))
	}
	b := []byte(text)
	s.Number = int64(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	for x := s.Number; x >= s.Number-k; x-- {
		slot := (x%(k+1) + k + 1) % (k + 1)
		s.Counts = append(s.Counts, binary.LittleEndian.Uint32(b[8+4*slot:]))
	}
	return s, nil
}

// admittedOf returns how many charges of b were admitted, as the script counts them.
func admittedOf(b *limiter.Batch) (n int64) {
	for i := range b.Charges {
		if d := &b.Decisions[i]; !b.Charges[i].Refund && !d.Over && d.Charged > 0 {
			n++
		}
	}
	return n
}
