package answer

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// ResetDenied makes the counters of the keys that are denied as new, of those that are selected. Without reset it
// says what it would do. Keys that are not denied now are left alone: it is not known what their counters count by. With a store they are those that this process has denied.
//
// An error may come with a report: of what was done before.
func (s *Service) ResetDenied(ctx context.Context, now limiter.Time, which live.Selection, reset bool) (*live.Reset, error) {
	rules := s.rules.Load()
	if rules == nil {
		return nil, errNoRules
	}
	report := &live.Reset{Selection: which.String(), Done: reset}
	x := &Exchange{}
	for _, c := range s.live.Select(which) {
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		domain, known := slices.BinarySearch(rules.set.Domains(), c.Domain)
		switch {
		case !known || c.Limit != nil && rules.set.Counterpart(c.Limit) == nil:
			continue // a load was faster
		case s.later && c.Name == nil:
			report.Left++
			continue
		}
		b := &x.plan.Batch
		b.Reset()
		b.Charges = append(b.Charges, limiter.Charge{ID: c.ID, Policy: c.Policy, Reserve: c.Policy.Reserve != nil})
		b.Partition, b.Clock, b.Budget = rules.partitions[domain], s.now, time.Minute
		x.plan.Names = append(x.plan.Names[:0], c.Name)
		used, err := s.resetOrLook(ctx, now, x, reset)
		if err != nil {
			return report, err
		}
		report.Counters++
		report.Used = limiter.SaturatingAdd(report.Used, used)
		if reset {
			s.live.Forget(c)
		}
	}
	return report, nil
}

// resetOrLook makes the one counter of x as new, or looks at it. It returns what was used.
func (s *Service) resetOrLook(ctx context.Context, now limiter.Time, x *Exchange, reset bool) (used uint64, err error) {
	if reset {
		return s.reset(ctx, now, x, 0)
	}
	if err := x.await(s.decide(now, x, x.waiting())); err != nil {
		return 0, err
	}
	return x.plan.Batch.Decisions[0].Before, nil
}

// reset makes the counter of charge i of x as new. It returns what was used.
func (s *Service) reset(ctx context.Context, now limiter.Time, x *Exchange, i int) (used uint64, err error) {
	used, err = s.decider.Reset(ctx, now, &x.plan.Batch, x.plan.Names, i)
	if c := &x.plan.Batch.Charges[i]; err == nil && c.Policy.Leases() {
		s.leases.Forget(c.ID)
	}
	return used, NotDecided(err)
}
