package simulate

import (
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// tally is what is counted of the decisions of one set of rules.
type tally struct {
	set    *descriptors.Set
	keys   *keys
	limits []limitTally
	// active are the limits that had hits, in the order of their first.
	active     []int32
	time       timeline
	showValues bool
	// minute is the number of the one that counts now.
	minute int64
	// second is the current time in whole seconds.
	second int64
	// rowLimits are the limits of keys that have rows of a table.
	rowLimits map[*key]rowLimit
}

// rowLimit is the limit of a key that has a row of a table.
type rowLimit struct {
	allowance uint64
	windows   windows
}

// limitTally is what is counted of one limit.
type limitTally struct {
	limit     *descriptors.Limit
	windows   windows
	allowance uint64 // of hits that it grants
	hits      uint64
	over      uint64
	keys      int
	keysOver  int
	demand    demand
	// shares, of a limit with a table, are thousandths of the number of each key, with those of rows, which demand has not.
	shares *demand
	bins   []report.Bin

	// window is the number of the one that second lies in.
	second int64
	window uint32

	// minuteHits and minuteOver are of the current minute; worst is the one with the
	// greatest share over limit.
	minuteHits, minuteOver uint64
	worst                  worst
}

type worst struct {
	minute     int64
	hits, over uint64
}

// newTally has an element for each limit of the rules, and one for limits that requests
// bring.
func newTally(set *descriptors.Set, show bool) *tally {
	return &tally{set: set, keys: newKeys(), limits: make([]limitTally, len(set.Limits)+1), showValues: show, minute: math.MinInt64}
}

// setTime says the time of what is added next.
func (t *tally) setTime(now limiter.Time) {
	t.second = int64(now / limiter.Time(time.Second))
	if minute := t.second / 60; minute != t.minute {
		t.endMinute()
		t.minute = minute
	}
	if t.time.advance(t.second) {
		for _, i := range t.active {
			t.time.fold(t.limits[i].bins)
		}
		t.time.setBin(t.second)
	}
}

func (t *tally) endMinute() {
	for _, i := range t.active {
		l := &t.limits[i]
		// over/hits greater than the worst's, without rounding.
		if w := &l.worst; l.minuteOver > 0 && float64(l.minuteOver)*float64(w.hits) > float64(w.over)*float64(l.minuteHits) || w.hits == 0 && l.minuteOver > 0 {
			*w = worst{t.minute, l.minuteHits, l.minuteOver}
		}
		l.minuteHits, l.minuteOver = 0, 0
	}
}

// addCharges counts the charges of a call that was decided.
func (t *tally) addCharges(req *descriptors.Request, plan *descriptors.Plan, replica int) {
	match := 0
	for i := range plan.Batch.Charges {
		c, d := &plan.Batch.Charges[i], &plan.Batch.Decisions[i]
		if c.Refund {
			continue
		}
		for match < len(plan.Matches)-1 && i >= plan.Matches[match].First+plan.Matches[match].Count {
			match++
		}
		if first := len(plan.Batch.Charges) - len(plan.Candidates); i >= first {
			match = plan.Candidates[i-first].Match
		}
		index := plan.Limits[i].Index
		if index < 0 {
			index = int32(len(t.limits) - 1)
		}
		l := &t.limits[index]
		if l.bins == nil {
			limit := plan.Limits[i]
			if limit.Table != nil {
				limit = t.set.Limits[index] // not the numbers of one row
			}
			t.startLimit(l, limit, index)
		}
		k, isNew := t.keys.findOrAdd(replicaID(c.ID, replica))
		if l.second != t.second { // divisions are slow
			l.second, l.window = t.second, l.windows.number(t.second)
		}
		window := t.windowNumber(l, plan.Limits[i], k)
		if isNew {
			k.limit, k.window = index, window
			l.keys++
			if t.showValues {
				text := entriesText(req.Descriptors[match].Entries)
				t.keys.texts = append(t.keys.texts, text)
				t.keys.textBytes += int64(len(text))
				k.text = uint32(len(t.keys.texts))
			}
		} else if window != k.window {
			t.endWindow(k)
			k.window, k.demand = window, 0
		}
		if plan.Limits[i].HasWindow() {
			addTo(c.Hits, &k.demand)
		} else { // at once
			k.demand = max(k.demand, limiter.SaturatingAdd(d.Before, min(c.Hits, 1)))
		}
		k.peak = max(k.peak, k.demand)
		b := &l.bins[t.time.now]
		addTo(c.Hits, &k.hits, &l.hits, &l.minuteHits, &b.Hits)
		if d.Over && c.Hits > 0 {
			if k.over == 0 {
				l.keysOver++
			}
			addTo(c.Hits, &k.over, &l.over, &l.minuteOver, &b.Over)
		}
	}
}

// addTo adds hits to each of the sums, which stop at 2^64-1.
func addTo(hits uint64, sums ...*uint64) {
	for _, sum := range sums {
		*sum = limiter.SaturatingAdd(*sum, hits)
	}
}

// memoryBytes is about how much memory the tally takes: for each key itself, its places in the index and
// that of its text.
func (t *tally) memoryBytes() int64 {
	return int64(t.keys.n)*128 + t.keys.textBytes + int64(len(t.rowLimits))*rowLimitBytes
}

// rowLimitBytes is what a key with a row takes beside: 32 bytes, in a map of which half may be empty.
const rowLimitBytes = 72

// windows say which window of a limit a time lies in.
type windows struct {
	seconds  uint32
	calendar *limiter.Calendar // whose they are, if not nil
}

func newWindows(p *limiter.Policy) windows {
	return windows{uint32(p.Window / time.Second), p.Calendar}
}

// number returns the number of the window that the second lies in; of a calendar's another number, which no other has.
func (w *windows) number(second int64) uint32 {
	if w.calendar != nil {
		start, _ := w.calendar.Window(limiter.Time(second * int64(time.Second)))
		return uint32(int64(start) / int64(time.Hour))
	}
	return uint32(second / int64(w.seconds))
}

// windowNumber returns the number of the window of a key, whose limit has the numbers of a row if it is not l's.
func (t *tally) windowNumber(l *limitTally, limit *descriptors.Limit, k *key) uint32 {
	if l.shares == nil || limit == l.limit {
		return l.window
	}
	own, ok := t.rowLimits[k]
	if !ok {
		own = rowLimit{uint64(limit.Policy.Limit), newWindows(&limit.Policy)}
		if t.rowLimits == nil {
			t.rowLimits = map[*key]rowLimit{}
		}
		t.rowLimits[k] = own
	}
	return own.windows.number(t.second)
}

// allowanceOf returns how many hits a key is granted in a window, at least 1.
func (t *tally) allowanceOf(k *key) uint64 {
	if own, ok := t.rowLimits[k]; ok {
		return max(1, own.allowance)
	}
	return max(1, t.limits[k.limit].allowance)
}

// endWindow counts what a key asked for in a window that is over.
func (t *tally) endWindow(k *key) {
	l := &t.limits[k.limit]
	if l.shares != nil {
		hi, lo := bits.Mul64(k.demand, thousandths)
		share := uint64(math.MaxUint64)
		if number := t.allowanceOf(k); hi < number {
			share, _ = bits.Div64(hi, lo, number)
		}
		l.shares.add(share, 1)
	}
	if _, own := t.rowLimits[k]; !own {
		l.demand.add(k.demand, 1)
	}
}

const thousandths = 1000

// startLimit is called with the first charge of a limit.
func (t *tally) startLimit(l *limitTally, limit *descriptors.Limit, index int32) {
	l.bins = make([]report.Bin, maxBins)
	l.windows, l.allowance = newWindows(&limit.Policy), uint64(limit.Policy.Limit)
	if limit.Rule != nil {
		l.limit = limit
	}
	if limit.Table != nil {
		l.shares = new(demand)
	}
	t.active = append(t.active, index)
}

// finish counts the windows that are not over yet.
func (t *tally) finish() {
	t.endMinute()
	for i := range t.keys.n {
		t.endWindow(t.keys.at(i))
	}
}

// countDenial counts that a request is denied that other rules admit, for the first key that has
// no room.
func (t *tally) countDenial(plan *descriptors.Plan, replica int) {
	for i := range plan.Batch.Charges {
		if d := &plan.Batch.Decisions[i]; d.Over && d.Denied && plan.Batch.Charges[i].Mode.Denies() {
			k, _ := t.keys.findOrAdd(replicaID(plan.Batch.Charges[i].ID, replica))
			k.moreDenied++
			return
		}
	}
}

// entriesText writes a descriptor for people.
func entriesText(entries []descriptors.Entry) string {
	var b strings.Builder
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(e.Key)
		b.WriteByte('=')
		b.Write(e.Value)
	}
	return b.String()
}

// shortHash is what tells a key apart in a report.
func shortHash(id identity.ID) uint32 { return uint32(id.Hi >> 32) }
