package limiter_test

import (
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// count charges one hit to a fixed window by one swap. The word contains the number of the window
// and an 8-bit count.
func count(word *atomic.Uint64, w uint64, p *limiter.Policy, stillOurs func() bool, t *turn) (over, ok bool) {
	for {
		old := word.Load()
		t.step()
		if !stillOurs() {
			return false, false
		}
		next := max(old, w<<8)
		if next&255 >= uint64(p.Limit) {
			return true, true
		}
		if word.CompareAndSwap(old, next+1) {
			return false, true
		}
	}
}

// carelessTable finds a counter's slot by its tag and does not check the tag again after it has
// read the word, which may belong to the slot's next owner.
func carelessTable(t *turn) mutant { return slotTable(t, false) }

// carefulTable is carelessTable without the mistake.
func carefulTable(t *turn) mutant { return slotTable(t, true) }

func slotTable(t *turn, careful bool) mutant {
	type slot struct{ tag, word atomic.Uint64 }
	var slots [4]slot
	// There is no step, so no other goroutine runs, as if under a lock.
	insert := func(tag, w uint64) bool {
		for i := range slots {
			if slots[i].tag.Load() == tag {
				return false
			}
		}
		for i := range slots {
			if slots[i].word.Load()>>8 < w {
				slots[i].tag.Store(tag)
				slots[i].word.Store(w<<8 | 1)
				return true
			}
		}
		panic("more live counters than slots")
	}
	return func(now limiter.Time, n int, p *limiter.Policy) bool {
		tag, w := uint64(n+1), index(now, p.Window)
	retry:
		for {
			for i := range slots {
				s := &slots[i]
				if s.tag.Load() != tag {
					continue
				}
				t.step()
				over, ok := count(&s.word, w, p, func() bool { return !careful || s.tag.Load() == tag }, t)
				if !ok {
					continue retry
				}
				return over
			}
			t.step()
			if insert(tag, w) {
				return false
			}
		}
	}
}

// deletingMap removes expired counters from a map while a caller may use one of them: its hit is
// lost.
func deletingMap(t *turn) mutant { return sweptMap(t, true) }

// keepingMap is deletingMap without the mistake.
func keepingMap(t *turn) mutant { return sweptMap(t, false) }

func sweptMap(t *turn, sweep bool) mutant {
	counters := map[int]*atomic.Uint64{} // no step during accesses, as if locked
	return func(now limiter.Time, n int, p *limiter.Policy) bool {
		w := index(now, p.Window)
		word := counters[n]
		if word == nil {
			word = &atomic.Uint64{}
			counters[n] = word
		}
		t.step()
		over, _ := count(word, w, p, func() bool { return true }, t)
		t.step()
		for n, word := range counters {
			if sweep && word.Load()>>8 < w {
				delete(counters, n)
			}
		}
		return over
	}
}
