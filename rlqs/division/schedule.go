package division

import "github.com/sluice-ratelimit/sluice/internal/heap"

// schedule is a heap of buckets, ordered by the time of their next division.
type schedule struct{ heap.Heap[*bucket] }

// Less implements [heap.Element]: the bucket that is due first is the first one.
func (b *bucket) Less(other *bucket) bool { return b.due < other.due }

// SetIndex implements [heap.Element].
func (b *bucket) SetIndex(i int) { b.heapIndex = i + 1 }

// add schedules a bucket for a time, unless it is scheduled for an earlier one.
func (s *schedule) add(b *bucket, at Time) {
	switch {
	case b.heapIndex == 0:
		b.due = at
		s.Push(b)
	case at < b.due:
		b.due = at
		s.Fix(b.heapIndex - 1)
	}
}

// pop removes and returns a bucket that is due, nil if there is none.
func (s *schedule) pop(now Time) *bucket {
	if len(s.Heap) > 0 && s.Heap[0].due <= now {
		b := s.Heap[0]
		s.remove(b)
		return b
	}
	return nil
}

// remove removes a bucket, if it is scheduled.
func (s *schedule) remove(b *bucket) {
	if b.heapIndex > 0 {
		s.Remove(b.heapIndex - 1)
	}
}

// queue is a FIFO queue of buckets. Each is in it at most once.
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

// pop removes and returns the first bucket, nil if there is none.
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

// next returns when the first bucket is due, or latest if that is earlier.
func (s *schedule) next(latest Time) Time {
	if len(s.Heap) > 0 {
		return min(latest, s.Heap[0].due)
	}
	return latest
}
