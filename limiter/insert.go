package limiter

// roomy is how many free slots make the preferred bucket good enough. Below it
// the emptier of the two is taken, so that pairs fill evenly: with 3, no pair
// overflows before six slots in ten are live.
const roomy = 3

// insert gives the counter a slot and stores used hits in the window that ends
// at end. It returns false, and has done nothing, if the counter has a slot by
// now or its window must be another one.
//
// A slot changes hands by three writes: its word becomes dead, its tag that of
// the new owner, its word that of the new owner. Charges that find a slot read
// tag, word and tag again, and then compare-and-swap the word. So one that was
// stalled before its compare-and-swap fails, for the word is another one, unless
// the new owner's word happens to equal the one that was seen. Words of expired
// counters cannot come back: the new window ends after the horizon, the old one
// did not. Those of counters that were given up could, a window with one hit
// being like another; hence the life in the word, which every change of hands
// flips. A charge can still reach a stranger if the slot changes hands twice
// while one goroutine stands between two instructions and the second window ends
// in the same second with the same count. The stranger, in a table that is
// overrun, is then charged too much, never too little.
//
// A charge that succeeds just before its slot is given up is forgotten with it.
func (t *Table) insert(at instant, tag uint64, id ID, p *Policy, end int64, used uint64) bool {
	first, second := t.pair(id)
	held := t.lock(first, second)
	defer held.unlock()
	at = t.notLate(at)
	if t.find(tag, id) != nil || windowEnd(p, at.sec) != end {
		return false
	}
	for {
		s, word := t.choose(first, second, at)
		old := s.tag.Load()
		if old == 0 {
			s.word.Store(windowWord(end, 0, used))
			s.tag.Store(tag)
			return true
		}
		had, _, live := state(old, word, at)
		if !live {
			t.raiseHorizon(at)
		}
		if !s.word.CompareAndSwap(word, dead) {
			continue // it was hit meanwhile; look for another
		}
		if live && had > 0 {
			t.givenUp.Add(1)
		} else {
			t.reclaimed.Add(1)
		}
		s.tag.Store(tag)
		s.word.Store(windowWord(end, nextLife(word), used))
		return true
	}
}

// choose returns the slot of the two buckets that a new counter should take, and
// its word: a free one, best one never used, since who is late may still ask for
// an expired counter; else the live one that has used least, of equals the one
// nearest to its end. So a flood of new values pushes out its own.
func (t *Table) choose(first, second uint64, at instant) (*slot, uint64) {
	var (
		free     [2]*slot
		freeWord [2]uint64
		unused   [2]bool
		count    [2]int

		victim     *slot
		victimWord uint64
		least      uint64
		soonest    int64
	)
	for n, i := range [2]uint64{first, second} {
		b := &t.buckets[i]
		for j := range b {
			s := &b[j]
			tag, word := s.tag.Load(), s.word.Load()
			had, left, live := state(tag, word, at)
			if !live {
				count[n]++
				if free[n] == nil || tag == 0 && !unused[n] {
					free[n], freeWord[n], unused[n] = s, word, tag == 0
				}
				continue
			}
			if victim == nil || had < least || had == least && left < soonest {
				victim, victimWord, least, soonest = s, word, had, left
			}
		}
		if n == 0 && count[0] >= roomy {
			return free[0], freeWord[0]
		}
	}
	switch {
	case count[0] == 0 && count[1] == 0:
		return victim, victimWord
	case count[0] >= count[1]:
		return free[0], freeWord[0]
	default:
		return free[1], freeWord[1]
	}
}

// notLate returns at, or the horizon if that is later: whoever comes late must
// not find an empty counter in a window whose counter has been reclaimed. Over a
// year late is not late: the clock was set back.
func (t *Table) notLate(at instant) instant {
	if h := instantOf(Time(t.horizon.Load())); at.before(h) && h.sec-at.sec <= maxLate {
		return h
	}
	return at
}

// raiseHorizon makes the horizon at least at.
func (t *Table) raiseHorizon(at instant) {
	for {
		h := t.horizon.Load()
		if !instantOf(Time(h)).before(at) || t.horizon.CompareAndSwap(h, int64(at.time())) {
			return
		}
	}
}

// A pairLock is the locks of two buckets, which may be one and the same.
type pairLock struct {
	t           *Table
	first, last uint64
}

// lock locks the two buckets against other inserts.
func (t *Table) lock(a, b uint64) pairLock {
	a, b = a%stripes, b%stripes
	l := pairLock{t: t, first: min(a, b), last: max(a, b)}
	t.locks[l.first].Lock()
	if l.last != l.first {
		t.locks[l.last].Lock()
	}
	return l
}

func (l pairLock) unlock() {
	if l.last != l.first {
		l.t.locks[l.last].Unlock()
	}
	l.t.locks[l.first].Unlock()
}
