package blocks_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// span is a number of hits at one unknown time from from to to, both included.
type span struct {
	from, to int64
	hits     int
}

// bound is the largest number of hits in an interval from a to b, both included: most + rate x
// (b-a), if b-a is at most longest. Longer intervals are not bounded. The unit of time is any: of a
// bucket it is a nanosecond, and of a window the window.
type bound struct {
	most, rate float64
	longest    int64
}

// excess is an interval with more hits than its bound.
type excess struct {
	a, b           int64
	hits, admitted float64
	allowed        float64
}

func (e excess) String() string {
	return fmt.Sprintf("between %d and %d, %.0f hits were certainly admitted, and %.1f are allowed", e.a, e.b, e.admitted, e.allowed)
}

// exceeded returns the interval that exceeds the bound most, or is the closest to it, and reports
// whether it exceeds it. A hit belongs to an interval if the interval contains its span, so every
// reported interval certainly exceeds its bound. An interval that touches the span of an element of
// extra may have its hits in addition.
//
// It sweeps over the ends b of the intervals. For each start a it knows the hits of [a,b] + rate x a,
// in a tree of maxima.
func (l bound) exceeded(hits, extra []span) (worst excess, found bool) {
	if len(hits) == 0 {
		return excess{hits: -l.most}, false
	}
	worst.hits = math.Inf(-1)
	starts := make([]int64, 0, len(hits))
	for _, s := range hits {
		starts = append(starts, s.from)
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	hits, extra = slices.Clone(hits), slices.Clone(extra)
	slices.SortFunc(hits, func(a, b span) int { return int(a.to - b.to) })
	slices.SortFunc(extra, func(a, b span) int { return int(a.from - b.from) })
	rank := func(t int64) int { // the number of starts before t
		n, _ := slices.BinarySearch(starts, t)
		return n
	}
	tree := newMaxima(len(starts), func(i int) float64 { return l.rate * float64(starts[i]-starts[0]) })
	for _, s := range hits {
		for len(extra) > 0 && extra[0].from <= s.to {
			tree.add(rank(extra[0].to+1), -float64(extra[0].hits))
			extra = extra[1:]
		}
		end := rank(s.from + 1)
		tree.add(end, float64(s.hits))
		first := 0
		if s.to-starts[0] > l.longest {
			first = rank(s.to - l.longest)
		}
		if first >= end {
			continue
		}
		i, value := tree.largest(first, end)
		over := value - l.most - l.rate*float64(s.to-starts[0])
		if over > worst.hits {
			length := float64(s.to - starts[i])
			worst = excess{a: starts[i], b: s.to, hits: over, allowed: l.most + l.rate*length, admitted: l.most + l.rate*length + over}
		}
	}
	return worst, worst.hits > 1e-6
}

// maxima is an array with addition to a prefix, and the maximum of a range.
type maxima struct {
	n    int
	most []float64 // of a subtree, with the additions to it and below
	adds []float64 // to all of a subtree
}

func newMaxima(n int, value func(int) float64) *maxima {
	size := 1
	for size < n {
		size *= 2
	}
	m := &maxima{n: size, most: make([]float64, 2*size), adds: make([]float64, 2*size)}
	for i := range size {
		m.most[size+i] = math.Inf(-1)
		if i < n {
			m.most[size+i] = value(i)
		}
	}
	for i := size - 1; i > 0; i-- {
		m.most[i] = max(m.most[2*i], m.most[2*i+1])
	}
	return m
}

// add adds to the first n elements.
func (m *maxima) add(n int, value float64) { m.addTo(1, 0, m.n, n, value) }

func (m *maxima) addTo(node, from, to, n int, value float64) {
	switch {
	case n <= from:
	case to <= n:
		m.most[node] += value
		m.adds[node] += value
	default:
		mid := (from + to) / 2
		m.addTo(2*node, from, mid, n, value)
		m.addTo(2*node+1, mid, to, n, value)
		m.most[node] = max(m.most[2*node], m.most[2*node+1]) + m.adds[node]
	}
}

// largest returns the largest of the elements from first to before end, and its index.
func (m *maxima) largest(first, end int) (index int, value float64) {
	return m.largestOf(1, 0, m.n, first, end)
}

func (m *maxima) largestOf(node, from, to, first, end int) (index int, value float64) {
	if end <= from || to <= first {
		return 0, math.Inf(-1)
	}
	if to-from == 1 {
		return from, m.most[node]
	}
	if first <= from && to <= end { // the leaf is below the child with the larger maximum
		mid := (from + to) / 2
		child, low, high := 2*node, from, mid
		if m.most[2*node+1] > m.most[2*node] {
			child, low, high = 2*node+1, mid, to
		}
		index, _ = m.largestOf(child, low, high, first, end)
		return index, m.most[node]
	}
	mid := (from + to) / 2
	index, value = m.largestOf(2*node, from, mid, first, end)
	if i, v := m.largestOf(2*node+1, mid, to, first, end); v > value {
		index, value = i, v
	}
	return index, value + m.adds[node]
}

// TestCheckerAgreesWithSearch compares the checker with a search of all intervals.
func TestCheckerAgreesWithSearch(t *testing.T) {
	t.Parallel()
	exceeding := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		random := func(n, length, most int) (all []span) {
			for range n {
				from := r.Int64N(40)
				all = append(all, span{from: from, to: from + r.Int64N(int64(length)), hits: 1 + r.IntN(most)})
			}
			return all
		}
		hits, extra := random(1+r.IntN(20), 8, 4), random(r.IntN(3), 6, 8)
		l := bound{most: float64(5 + r.IntN(20)), rate: float64(r.IntN(8)) / 8, longest: int64(1 + r.IntN(50))}
		want := 0.0
		for a := range int64(50) {
			for b := a; b < 50 && b-a <= l.longest; b++ {
				over := -l.most - l.rate*float64(b-a)
				for _, s := range hits {
					if a <= s.from && s.to <= b {
						over += float64(s.hits)
					}
				}
				for _, s := range extra {
					if a <= s.to && s.from <= b {
						over -= float64(s.hits)
					}
				}
				want = max(want, over)
			}
		}
		got, found := l.exceeded(hits, extra)
		if found != (want > 1e-6) || found && math.Abs(got.hits-want) > 1e-6 {
			t.Fatalf("seed %d: exceeded() = %v (%v more), %t; want %v more", seed, got, got.hits, found, want)
		}
		if found {
			exceeding++
		}
	}
	if exceeding < 200 || exceeding > 1800 {
		t.Errorf("%d of 2000 exceed their bound", exceeding)
	}
}
