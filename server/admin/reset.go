package admin

import (
	"context"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// ResetDenied resets the counters of the selected denied keys, or returns a preview if reset is
// false. It cannot reset keys that are not denied, because their limits are not recorded. With a
// store, the selection contains only keys that this process has denied.
//
// If an error occurs after counters were reset, ResetDenied returns both the report and the error.
func (a *API) ResetDenied(ctx context.Context, now limiter.Time, which live.Selection, reset bool) (*live.Reset, error) {
	rules, err := a.service.Active()
	if err != nil {
		return nil, err
	}
	report := &live.Reset{Selection: which.String(), Done: reset}
	stored := a.service.Settings().Decider != nil
	for _, c := range a.service.Recorder().Select(which) {
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		domain, known := slices.BinarySearch(rules.Set.Domains(), c.Domain)
		switch {
		case !known || c.Limit != nil && rules.Set.Counterpart(c.Limit) == nil:
			continue // new rules without the limit were activated
		case stored && c.Name == nil:
			report.NotReset++
			continue
		}
		lookup := rules.LookupCharge(domain, limiter.Charge{ID: c.ID, Policy: c.Policy, Reserve: c.Policy.Reserve != nil}, c.Name)
		var used uint64
		if reset {
			used, err = lookup.Reset(ctx, now, 0)
		} else if err = lookup.Decide(now); err == nil {
			used = lookup.Plan.Batch.Decisions[0].Before
		}
		if err != nil {
			return report, err
		}
		report.Counters++
		report.Used = limiter.SaturatingAdd(report.Used, used)
		if reset {
			a.service.Recorder().Forget(c)
		}
	}
	return report, nil
}
