package quota

import "github.com/sluice-ratelimit/sluice/internal/heap"

// schedule has buckets by the time at which they are to be divided next. It is a heap.
type schedule struct{ heap.Heap[*bucket] }

// Less makes the bucket that is due first the first of the heap.
func (b *bucket) Less(other *bucket) bool { return b.due < other.due }

// SetIndex notes the index in the heap.
func (b *bucket) SetIndex(i int) { b.place = i + 1 }

// add plans a bucket for a time, unless it is planned for an earlier one.
func (s *schedule) add(b *bucket, at Time) {
	switch {
	case b.place == 0:
		b.due = at
		s.Push(b)
	case at < b.due:
		b.due = at
		s.Fix(b.place - 1)
	}
}

// pop returns a bucket that is due, nil if none is.
func (s *schedule) pop(now Time) *bucket {
	if len(s.Heap) > 0 && s.Heap[0].due <= now {
		b := s.Heap[0]
		s.drop(b)
		return b
	}
	return nil
}

// drop takes a bucket out, if it is there.
func (s *schedule) drop(b *bucket) {
	if b.place > 0 {
		s.Remove(b.place - 1)
	}
}

// queue has buckets in the order in which they were pushed, each once at most.
type queue struct {
	buckets []*bucket
	first   int
}

func (q *queue) push(b *bucket) {
	if b.dirty {
		return
	}
	if q.first > len(q.buckets)/2 {
		q.buckets = append(q.buckets[:0], q.buckets[q.first:]...)
		q.first = 0
	}
	b.dirty = true
	q.buckets = append(q.buckets, b)
}

// pop returns the first bucket, nil if there is none.
func (q *queue) pop() *bucket {
	if q.first == len(q.buckets) {
		return nil
	}
	b := q.buckets[q.first]
	q.buckets[q.first] = nil
	q.first++
	b.dirty = false
	return b
}

// next returns when the first bucket is due, at most latest.
func (s *schedule) next(latest Time) Time {
	if len(s.Heap) > 0 {
		return min(latest, s.Heap[0].due)
	}
	return latest
}
