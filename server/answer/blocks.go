package answer

import (
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// blockDecider is a [Decider] that charges hits of hot counters to a store in advance, in blocks.
// Its methods are those of [Service].
type blockDecider interface {
	Block(now limiter.Time, c *limiter.Charge) (unused, size uint64)
	Blocks(now limiter.Time, each func(c *limiter.Charge, description any, unused, size uint64)) (hot int, replicas int64, ok bool)
}

// Block returns the hits of the counter of c that this replica has charged to a store in advance and
// has not used at the time now, and their number when the last were charged; 0 and 0 without any.
func (s *Service) Block(now limiter.Time, c *limiter.Charge) (unused, size uint64) {
	if d, ok := s.decider.(blockDecider); ok {
		return d.Block(now, c)
	}
	return 0, 0
}

// DescribeCounter implements [limiter.Describer]. It returns a [live.CounterName].
func (x *Exchange) DescribeCounter(charge int) any {
	l := x.plan.Limits[charge]
	name := live.CounterName{Domain: x.plan.DomainName, Limit: l.String()}
	if l.Rule == nil { // an override
		return name
	}
	name.Rule = l.Rule.Path()
	if rule := x.rules.set.Limits[l.Index]; rule != l {
		name.Limit, name.OwnLimit, name.Table = rule.String(), rules.RateText(&l.Policy), l.Table.Name()
	}
	if x.service.Recorder().Mode() == live.Clear {
		name.Descriptor = live.DescriptorText(x.decoder.req.Descriptors[x.descriptorOf(charge)].Entries)
	}
	return name
}

// Blocks calls each with a charge of every counter that has a block, its [live.CounterName], and the
// results of [Service.Block]. It returns the number of hot counters of this replica, and the number of replicas
// among which blocks are divided, 0 if it is not known. ok is false if there are no blocks, because
// the counters are in memory or blocks are off.
func (s *Service) Blocks(now limiter.Time, each func(c *limiter.Charge, description any, unused, size uint64)) (hot int, replicas int64, ok bool) {
	if d, ok := s.decider.(blockDecider); ok {
		return d.Blocks(now, each)
	}
	return 0, 0, false
}
