package quota

import "container/heap"

// schedule has buckets by the time at which they are to be divided next. It is a heap.
type schedule []*bucket

// add plans a bucket for a time, unless it is planned for an earlier one.
func (s *schedule) add(b *bucket, at Time) {
	switch {
	case b.place == 0:
		b.due = at
		heap.Push(s, b)
	case at < b.due:
		b.due = at
		heap.Fix(s, b.place-1)
	}
}

// pop returns a bucket that is due, nil if none is.
func (s *schedule) pop(now Time) *bucket {
	if len(*s) > 0 && (*s)[0].due <= now {
		b := (*s)[0]
		s.drop(b)
		return b
	}
	return nil
}

// drop takes a bucket out, if it is there.
func (s *schedule) drop(b *bucket) {
	if b.place > 0 {
		heap.Remove(s, b.place-1)
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
	if len(*s) > 0 {
		return min(latest, (*s)[0].due)
	}
	return latest
}

func (s *schedule) Len() int           { return len(*s) }
func (s *schedule) Less(i, j int) bool { return (*s)[i].due < (*s)[j].due }

func (s *schedule) Swap(i, j int) {
	h := *s
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

func (s *schedule) Push(b any) {
	if b, ok := b.(*bucket); ok {
		*s = append(*s, b)
		b.place = len(*s)
	}
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	b := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	b.place = 0
	return b
}
