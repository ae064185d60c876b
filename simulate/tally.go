package simulate

import (
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// tally collects statistics of the decisions by one set of rules.
type tally struct {
	set    *descriptors.Set
	keys   *keys
	limits []limitTally
	// active are the limits with hits, in order of the first.
	active     []int32
	time       timeline
	showValues bool
	// second is the current time in seconds since 1970.
	second int64
	// rowLimits are the limits of keys that have table rows.
	rowLimits map[*key]rowLimit
}

type rowLimit struct {
	allowance uint64
	windows   windows
}

// limitTally collects statistics of one limit.
type limitTally struct {
	limit     *descriptors.Limit
	windows   windows
	allowance uint64 // hits per window
	hits      uint64
	over      uint64
	keys      int
	keysOver  int
	demand    demand
	// shares is used for limits with a table, nil for others. It counts the demand of all keys in
	// thousandths of their allowances; demand counts only keys without a row.
	shares *demand
	bins   []report.Bin

	// window is the window that contains second.
	second int64
	window uint32
}

// newTally returns a tally with an element for each limit of the rules and one for limits set by
// requests.
func newTally(set *descriptors.Set, show bool) *tally {
	return &tally{
		set: set, keys: newKeys(), limits: make([]limitTally, len(set.Limits)+1), showValues: show,
	}
}

// setTime sets the time of the following charges.
func (t *tally) setTime(now limiter.Time) {
	t.second = int64(now / limiter.Time(time.Second))
	if t.time.advance(t.second) {
		for _, i := range t.active {
			t.time.fold(t.limits[i].bins)
		}
		t.time.setBin(t.second)
	}
}

// addCharges counts the charges of a decided call.
func (t *tally) addCharges(req *descriptors.Request, plan *descriptors.Plan) {
	match := 0
	for i := range plan.Batch.Charges {
		c := &plan.Batch.Charges[i]
		d := &plan.Batch.Decisions[i]
		if c.Refund || d.Skipped {
			continue
		}
		// Find the descriptor of the charge. The charges of candidates are the last ones.
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
				limit = t.set.Limits[index] // not the limit of one row
			}
			t.startLimit(l, limit, index)
		}
		k, isNew := t.keys.findOrAdd(c.ID)
		if l.second != t.second { // division is slow
			l.second = t.second
			l.window = l.windows.number(t.second)
		}
		window := t.windowNumber(l, plan.Limits[i], k)
		if isNew {
			k.limit = index
			k.window = window
			l.keys++
			if entries := req.Descriptors[match].Entries; !t.showValues {
				k.name = uint32(t.set.DescriptorID(plan, match, entries).Hi >> 32)
			} else {
				text := entriesText(entries)
				t.keys.texts = append(t.keys.texts, text)
				t.keys.textBytes += int64(len(text))
				k.name = uint32(len(t.keys.texts))
			}
		} else if window != k.window {
			t.endWindow(k)
			k.window = window
			k.demand = 0
		}
		if plan.Limits[i].HasWindow() {
			addTo(c.Hits, &k.demand)
		} else { // concurrency
			k.demand = max(k.demand, limiter.SaturatingAdd(d.Before, min(c.Hits, 1)))
		}
		k.peak = max(k.peak, k.demand)
		b := &l.bins[t.time.now]
		addTo(c.Hits, &k.hits, &l.hits, &b.Hits)
		if d.Over && c.Hits > 0 {
			if k.over == 0 {
				l.keysOver++
			}
			addTo(c.Hits, &k.over, &l.over, &b.Over)
		}
	}
}

// addTo adds hits to each of the sums, which saturate.
func addTo(hits uint64, sums ...*uint64) {
	for _, sum := range sums {
		*sum = limiter.SaturatingAdd(*sum, hits)
	}
}

// memoryBytes estimates the tally's memory: for each key its struct, its index entries and its
// text.
func (t *tally) memoryBytes() int64 {
	return int64(t.keys.n)*128 + t.keys.textBytes + int64(len(t.rowLimits))*rowLimitBytes
}

// rowLimitBytes is the memory of a key's row limit: 32 bytes, in a map that may be half empty.
const rowLimitBytes = 72

// windows determines which window of a limit contains a time.
type windows struct {
	seconds  uint32
	calendar *limiter.Calendar // nil unless the windows follow a calendar
}

func newWindows(p *limiter.Policy) windows {
	return windows{uint32(p.Window / time.Second), p.Calendar}
}

// number identifies the window that contains the second.
func (w *windows) number(second int64) uint32 {
	if w.calendar != nil {
		start, _ := w.calendar.Window(limiter.Time(second * int64(time.Second)))
		return uint32(int64(start) / int64(time.Hour))
	}
	return uint32(second / int64(w.seconds))
}

// windowNumber returns the key's current window. limit has the window of a row if it is not
// l.limit.
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

// allowanceOf returns the number of hits that a key is granted per window, at least 1.
func (t *tally) allowanceOf(k *key) uint64 {
	if own, ok := t.rowLimits[k]; ok {
		return max(1, own.allowance)
	}
	return max(1, t.limits[k.limit].allowance)
}

// endWindow adds the key's demand in a window that ended.
func (t *tally) endWindow(k *key) {
	l := &t.limits[k.limit]
	if l.shares != nil {
		hi, lo := bits.Mul64(k.demand, thousandths)
		share := uint64(math.MaxUint64)
		if allowance := t.allowanceOf(k); hi < allowance {
			share, _ = bits.Div64(hi, lo, allowance)
		}
		l.shares.add(share)
	}
	if _, own := t.rowLimits[k]; !own {
		l.demand.add(k.demand)
	}
}

const thousandths = 1000

// startLimit initializes a limit's statistics at its first charge.
func (t *tally) startLimit(l *limitTally, limit *descriptors.Limit, index int32) {
	l.bins = make([]report.Bin, maxBins)
	l.windows = newWindows(&limit.Policy)
	l.allowance = uint64(limit.Policy.Limit)
	if limit.Rule != nil {
		l.limit = limit
	}
	if limit.Table != nil {
		l.shares = new(demand)
	}
	t.active = append(t.active, index)
}

// finish ends all windows.
func (t *tally) finish() {
	for i := range t.keys.n {
		t.endWindow(t.keys.at(i))
	}
}

// entriesText formats a descriptor.
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
