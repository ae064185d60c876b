package limiter

import (
	"sync"
	"sync/atomic"
	"time"
)

// A sliding log keeps the time of every hit that counts, oldest first, in a ring
// of cells. The payload of its word is where the next one goes and how many there
// are; the note says when the newest ceases to count. A hit that comes late counts
// at the time of the newest, so that the times stay sorted.
const (
	logCountBits = 13
	logCountMask = 1<<logCountBits - 1
)

// A logLock is held by who inserts a log.
type logLock struct {
	sync.Mutex
	// moves counts the logs that have moved to another shelf. It grows when one is on
	// the new and not yet off the old: who has found it on neither looks again.
	moves atomic.Uint64
}

// logPayload returns the payload of a log with so many stamps up to next.
func logPayload(next, count uint64) uint64 { return next<<logCountBits | count }

// A log is the cells of a counter as its word has them. The nth newest stamp is n
// back from the cell where the next one goes.
type log struct {
	cells []atomic.Uint64
	next  uint64
}

// log returns what the word of a slot makes of its cells. Who reads a slot that
// changes hands, twice, may have a word that is no log's: no harm, since it is no
// longer the same either, but it must not lead out of the cells.
func (s *shelf) log(index, word uint64) log {
	n, next := s.stride(), word&payloadMask>>logCountBits
	if next >= n {
		next = 0
	}
	return log{cells: s.cells[index*n:][:n], next: next}
}

func (v *view) log() log { return v.shelf.log(v.index, v.word) }

// at returns a stamp, for who checks afterwards that the word is still the same.
func (l log) at(back uint64) int64 {
	pause(beforeCellLoad)
	return l.held(back)
}

// held is at for who holds the cells.
func (l log) held(back uint64) int64 {
	at, n := l.next-back, uint64(len(l.cells))
	if at >= n { // below 0, by at most n
		at += n
	}
	return int64(l.cells[at].Load()) //nolint:gosec // a time
}

// loadLog fills in v's state. It reports false if the cells changed meanwhile.
func (v *view) loadLog(at instant, p *Policy) bool {
	now := at.stamp()
	v.state = state{num: now}
	count := min(v.word&logCountMask, v.shelf.stride())
	if count == 0 {
		return true
	}
	v.past, v.num, _ = v.log().live(min(count, p.limit()), now, p.window())
	return v.slot.word.Load() == v.word
}

// live returns how many of the newest most stamps count at the time now, the time at
// which a hit would count, now or that of the newest if it is late, and the newest.
// There is one at least.
func (l log) live(most uint64, now, window int64) (past uint64, num, newest int64) {
	newest = l.at(1)
	if newest-now > window+maxLateNanos { // the clock was set back
		return 0, now, newest
	}
	num = max(now, newest)
	return l.within(most, num-window), num, newest
}

// within returns how many of the newest most stamps are after then. Those that are
// not have ceased to count since the last hit, so are few as a rule, and are looked
// for from the oldest on in growing steps.
func (l log) within(most uint64, then int64) uint64 {
	lo, hi := uint64(0), most+1 // lo newest are after then, and fewer than hi
	for step := uint64(1); step < hi; step *= 2 {
		if l.at(hi-step) > then {
			lo = hi - step
			break
		}
		hi -= step
	}
	for lo+1 < hi {
		if mid := (lo + hi) / 2; l.at(mid) > then {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// logRetry returns the time until hits, at most the limit, have room.
func (v *view) logRetry(at instant, p *Policy, st *state, hits uint64) (time.Duration, bool) {
	stamp := st.num
	if need := st.past + st.used + hits - p.limit(); need <= st.past {
		stamp = v.log().at(st.past - need + 1)
	}
	return time.Duration(stamp + p.window() - at.stamp()), v.slot == nil || v.slot.word.Load() == v.word
}

// logReset returns the time until no hit counts any more.
func (v *view) logReset(at instant, p *Policy, st *state) time.Duration {
	stamp := st.num
	if st.used == 0 {
		if st.past == 0 {
			return 1
		}
		stamp = v.log().at(v.past - st.past + 1)
	}
	return time.Duration(max(1, stamp+p.window()-at.stamp()))
}

// storeLog is store for logs. If the slot is not v's own, what still counts moves
// there.
func (v *view) storeLog(s *shelf, index uint64, p *Policy, after *state) uint64 {
	n := s.stride()
	s.fetch(index)
	next, count, newest := uint64(0), after.past+after.used, after.num
	switch {
	case v.slot == nil:
	case s != v.shelf:
		skip := uint64(0) // newest ones that were given back
		if after.used == 0 {
			skip = v.past - after.past
		}
		old := v.log()
		for i := range after.past {
			newest = old.held(after.past - i + skip)
			s.cell(index, i).Store(uint64(newest)) //nolint:gosec // a time
		}
		next = after.past % n
	default:
		next = v.word & payloadMask >> logCountBits
		if after.used == 0 && after.past < v.past {
			if newest -= p.window(); after.past > 0 { // an empty log is an absent one from now on
				newest = v.log().held(v.past - after.past + 1)
			}
			next = (next + n - (v.past - after.past)) % n
		}
	}
	if after.used > 0 {
		newest = after.num
	}
	for range after.used {
		s.cell(index, next).Store(uint64(newest)) //nolint:gosec // a time
		next = (next + 1) % n
	}
	s.note(index).end.Store(newest + p.window())
	return logPayload(next, count)
}

// unlog takes up to hits stamps of this time out of the log, wherever they are. It
// reports false, and has done nothing, if v is no longer true.
func (v *view) unlog(stamp int64, hits uint64) bool {
	if !v.hold() {
		return false
	}
	n, next, count := v.shelf.stride(), v.word&payloadMask>>logCountBits, v.word&logCountMask
	kept, to := count, next
	if count > 0 {
		to = (next + n - count) % n
	}
	for i, from := uint64(0), to; i < count; i++ {
		c := v.shelf.cell(v.index, from).Load()
		from = (from + 1) % n
		if int64(c) == stamp && hits > 0 { //nolint:gosec // a time
			hits--
			kept--
			continue
		}
		v.shelf.cell(v.index, to).Store(c)
		to = (to + 1) % n
	}
	v.slot.word.Store(nextVersion(v.word, logPayload(to, kept)))
	return true
}
