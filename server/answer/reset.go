package answer

import (
	"context"
	"errors"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// errResetInStore says that keys cannot be reset by what is kept of them.
var errResetInStore = errors.New("counters are in a store, which keys that are denied do not name: reset them one by one, with sluice explain --addr --descriptor K=V --reset")

// ResetDenied makes the counters of the keys that are denied as new, of those that are selected. Without reset it
// says what it would do. Keys that are not denied now are left alone: nothing knows which rule their counters are
// of.
func (s *Service) ResetDenied(ctx context.Context, now limiter.Time, which live.Selection, reset bool) (*live.Reset, error) {
	rules := s.rules.Load()
	switch {
	case rules == nil:
		return nil, errNoRules
	case s.later:
		return nil, errResetInStore
	}
	report := &live.Reset{Selection: which.String(), Done: reset}
	var b limiter.Batch
	for _, c := range s.live.Select(which) {
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		limit := rules.set.Counterpart(c.Limit)
		if limit == nil {
			continue // a load was faster
		}
		b.Reset()
		b.Charges = append(b.Charges, limiter.Charge{ID: c.ID, Policy: &limit.Policy})
		b.Partition = rules.partitions[limit.Rule.DomainIndex()]
		report.Counters++
		if reset {
			report.Used += s.table.Reset(now, &b, 0)
			s.live.Forget(c)
			continue
		}
		s.table.Decide(now, &b)
		report.Used += b.Decisions[0].Before
	}
	return report, nil
}
