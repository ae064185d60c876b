package store

import "github.com/sluice-ratelimit/sluice/limiter"

// Blocks calls each for every counter on which this replica has a block at the time now. c is a charge
// of the counter, and must not be changed. description is that of [limiter.Batch.Describer], or nil.
// unused and size are the results of [Store.Block]. Blocks returns the number of hot counters, and the
// number of replicas that have blocks, 0 if it is not known. ok is false if blocks are off; see
// [Options.Blocks].
func (s *Store) Blocks(now limiter.Time, each func(c *limiter.Charge, description any, unused, size uint64)) (hot int, replicas int64, ok bool) {
	if s.blocks == nil {
		return 0, 0, false
	}
	all := s.blocks.counters()
	for _, h := range all {
		if unused, size := s.Block(now, &h.charge); size > 0 {
			each(&h.charge, h.description, unused, size)
		}
	}
	return len(all), s.blocks.replicas.Load(), true
}
