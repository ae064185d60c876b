package answer

import "github.com/sluice-ratelimit/sluice/limiter"

// blockDecider is a [Decider] that charges hits of hot counters to a store in advance, in blocks.
// Its methods are those of [Service].
type blockDecider interface {
	Block(now limiter.Time, c *limiter.Charge) (unused, size uint64)
	Blocks(now limiter.Time, each func(c *limiter.Charge, unused, size uint64)) (hot int, replicas int64, ok bool)
}

// Block returns the hits of the counter of c that this replica has charged to a store in advance and
// has not used at the time now, and their number when the last were charged; 0 and 0 without any.
func (s *Service) Block(now limiter.Time, c *limiter.Charge) (unused, size uint64) {
	if d, ok := s.decider.(blockDecider); ok {
		return d.Block(now, c)
	}
	return 0, 0
}

// Blocks calls each with a charge of every counter that has a block, and the results of
// [Service.Block]. It returns the number of hot counters of this replica, and the number of replicas
// among which blocks are divided, 0 if it is not known. ok is false if there are no blocks, because
// the counters are in memory or blocks are off.
func (s *Service) Blocks(now limiter.Time, each func(c *limiter.Charge, unused, size uint64)) (hot int, replicas int64, ok bool) {
	if d, ok := s.decider.(blockDecider); ok {
		return d.Blocks(now, each)
	}
	return 0, 0, false
}
