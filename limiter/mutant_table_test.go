package limiter_test

import (
	"sync/atomic"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// count takes one hit of a fixed window from a word of window and 8 bits of
// count, in one swap.
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

// carelessTable finds a counter's slot by its tag and does not look at the tag
// again once it has read the word, which may be that of the slot's next owner.
func carelessTable(t *turn) mutant { return slotTable(t, false) }

// carefulTable is the same without the mistake.
func carefulTable(t *turn) mutant { return slotTable(t, true) }

func slotTable(t *turn, careful bool) mutant {
	type slot struct{ tag, word atomic.Uint64 }
	var slots [4]slot
	// No step, so nobody runs meanwhile: as if under a lock.
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

// deletingMap sweeps expired counters out of a map while a caller may hold one of
// them: its hit is lost.
func deletingMap(t *turn) mutant { return sweptMap(t, true) }

// keepingMap is the same without the mistake.
func keepingMap(t *turn) mutant { return sweptMap(t, false) }

func sweptMap(t *turn, sweep bool) mutant {
	counters := map[int]*atomic.Uint64{} // as if under a lock
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
