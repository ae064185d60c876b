package quota

// schedule has buckets by the time at which they are to be divided next. A bucket may stand in it more
// than once; bucket.due says which entry holds.
type schedule struct{ heap []entry }

type entry struct {
	at Time
	b  *bucket
}

// add plans a bucket for a time, unless it is planned for an earlier one.
func (s *schedule) add(b *bucket, at Time) {
	if b.due != 0 && b.due <= at {
		return
	}
	b.due = at
	s.heap = append(s.heap, entry{at, b})
	for i := len(s.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if s.heap[parent].at <= s.heap[i].at {
			break
		}
		s.heap[parent], s.heap[i] = s.heap[i], s.heap[parent]
		i = parent
	}
}

// pop returns a bucket that is due, nil if none is.
func (s *schedule) pop(now Time) *bucket {
	for len(s.heap) > 0 && s.heap[0].at <= now {
		e := s.heap[0]
		s.drop()
		if e.b.due == e.at {
			e.b.due = 0
			return e.b
		}
	}
	return nil
}

// next returns when the first bucket is due, at most latest.
func (s *schedule) next(latest Time) Time {
	if len(s.heap) > 0 {
		return min(latest, s.heap[0].at)
	}
	return latest
}

func (s *schedule) drop() {
	last := len(s.heap) - 1
	s.heap[0] = s.heap[last]
	s.heap[last] = entry{}
	s.heap = s.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return
		}
		if child+1 < last && s.heap[child+1].at < s.heap[child].at {
			child++
		}
		if s.heap[i].at <= s.heap[child].at {
			return
		}
		s.heap[i], s.heap[child] = s.heap[child], s.heap[i]
		i = child
	}
}
