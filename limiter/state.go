package limiter

import (
	"math"
	"time"
)

// A State is a counter as a store outside of this process has it, in numbers that do not
// depend on the memory of a [Table]. The zero value is an absent counter, so one that
// nobody has hit.
//
//	                Hits            Time               beside
//	fixed window    of the window   the window's end   -
//	buckets         -               TAT                Sixteenths
//	sliding window  -               -                  Number, Counts
//	sliding log     that count      of the newest hit  Stamp
type State struct {
	// Hits are those of a fixed window, of which more than [MaxCount] are taken for as
	// many; or those of a log that count at the time of the charge, at most its limit: of a
	// time before the newest hit, those that count at the newest.
	Hits uint64
	// Time is the end of a fixed window, in whole seconds; the theoretical arrival time of a
	// bucket; the time of the newest hit of a log.
	Time Time
	// Sixteenths of a nanosecond, 0 to 15, that a bucket's TAT is after Time. Only buckets
	// whose emission interval is below 1024 ns have them.
	Sixteenths uint8
	// Number is that of the newest sub-window in which a ring was hit: of the times from
	// Number times the length of [Policy.Ring] on.
	Number int64
	// Counts are the hits of that sub-window and of the k before it, the newest first. What
	// is missing is 0. Without any the counter is absent.
	Counts []uint32
	// Stamp is what one charge asks a log for. For hits that have no room it is the time of
	// the hit that must leave first: of n hits that count once the charge is made (as many
	// as before, unless denied hits count), the one that is n + hits - limit from the
	// oldest. For a refund, and for what follows it in the same batch, it is the time of the
	// newest hit that stays. Else, and where that hit is the batch's own, it is not
	// looked at.
	Stamp Time
}

// MaxCount is the greatest number of hits that a fixed window counts. It is above the
// greatest limit.
const MaxCount = windowMost

// found makes v the window that v.found tells of. A window is its own whatever the time: the
// store may have decided a moment after it ended.
func (fixedWindow) found(v *view, at Time, p *Policy) {
	if v.found.Time == 0 {
		v.state = state{num: windowEnd(p, at)}
		return
	}
	v.state = state{used: min(v.found.Hits, windowMost), num: v.found.Time.seconds()}
}

func (fixedWindow) tell(_ *view, _ Time, _ *Policy, st state, s *State) {
	s.Hits, s.Time = st.used, Time(st.num*int64(time.Second))
}

func (gcra) found(v *view, at Time, p *Policy) {
	k, s := p.bucket(), v.found
	if s.Time < at {
		v.state = k.at(at, 0)
		return
	}
	level := ticks(s.Time) - ticks(at) //nolint:gosec // the difference, which is not negative
	switch rest := ticks(s.Sixteenths & 15); {
	case level > highestCoarse: // the clock was set back
		level = 0
	case k.unit == fine:
		level = min(level, highestFine>>fine)<<fine + rest
	case rest > 0:
		level++
	}
	v.state = k.at(at, level)
}

func (gcra) tell(_ *view, at Time, _ *Policy, st state, s *State) {
	if level, u := levelOf(uint64(st.num), at); level > 0 { //nolint:gosec // bits
		s.Time = at + Time(level>>u) //nolint:gosec // below 2^62
		s.Sixteenths = uint8(level & (1<<u - 1) & 15)
	}
}

func (slidingWindow) found(v *view, at Time, p *Policy) {
	r, s := p.ring(), v.found
	if most := maxStamp / r.length; len(s.Counts) == 0 || s.Number > most || s.Number < -most {
		v.head, v.word, v.state = math.MinInt64/2, 0, state{num: r.number(at.stamp())}
		return
	}
	v.head, v.word = s.Number, uint64(s.Counts[0])
	past := uint64(0)
	for x := v.head - r.k; x < v.head; x++ {
		past += v.countOf(r.k, x)
	}
	v.pass(r, at.stamp(), past)
}

func (slidingWindow) tell(v *view, _ Time, p *Policy, st state, s *State) {
	r := p.ring()
	s.Number, s.Counts = st.num, append(s.Counts[:0], uint32(st.used)) //nolint:gosec // what a cell holds
	for x := st.num - 1; x >= st.num-r.k && st.past > 0; x-- {
		s.Counts = append(s.Counts, uint32(v.countOf(r.k, x))) //nolint:gosec // as above
	}
}

func (slidingLog) found(v *view, at Time, p *Policy) {
	now, newest := at.stamp(), v.found.Time.stamp()
	v.state, v.head, v.newer = state{num: now}, math.MinInt64, 0
	if v.found.Hits > 0 && newest-now <= p.window()+maxLateNanos { // else the clock was set back
		v.num, v.past = max(now, newest), min(v.found.Hits, logLimit(p))
	}
}

// stampAt is view.stampAt for what a store told.
func (s *State) stampAt(nth uint64) int64 {
	if nth == 1 {
		return s.Time.stamp()
	}
	return s.Stamp.stamp()
}

func (slidingLog) tell(v *view, _ Time, _ *Policy, st state, s *State) {
	if s.Hits = st.used + st.past; s.Hits == 0 {
		return
	}
	if s.Time = Time(st.num); st.used == 0 {
		s.Time = Time(v.stampAt(v.staying(1, st)))
	}
}
