package admin

import (
	"context"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// ResetCounters resets the selected counters, or returns a preview if reset is false. Without a
// descriptor it cannot reset keys that are not denied, because their limits are not recorded; with a
// store, the selection then contains only keys that this process has denied. A descriptor with counters
// of its own selects no counter that it shares with others.
//
// If an error occurs after counters were reset, it returns both the report and the error.
func (a *API) ResetCounters(
	ctx context.Context, now limiter.Time, which live.Selection, reset bool,
) (*live.Reset, error) {
	rules, err := a.service.Active()
	if err != nil {
		return nil, err
	}
	report := &live.Reset{Selection: which.String(), Done: reset}
	if which.Descriptor != "" {
		d, err := parseDescriptor(which.Descriptor, which.Limit)
		if err != nil {
			return report, err
		}
		lookup := rules.Lookup(which.Domain, d)
		isShared := func(l *descriptors.Limit) bool { return l.SharedCounter() != "" }
		onlyShared := !slices.ContainsFunc(lookup.Plan.Limits, func(l *descriptors.Limit) bool { return !isShared(l) })
		for i := range lookup.Plan.Batch.Charges {
			if isShared(lookup.Plan.Limits[i]) && !onlyShared {
				continue
			}
			if err := resetCharge(ctx, now, lookup, i, report); err != nil {
				return report, err
			}
			if reset {
				rules.Live[lookup.Plan.DomainIndex].Forget(lookup.Plan.Batch.Charges[i].ID)
			}
		}
		return report, nil
	}
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
		lookup := rules.LookupCharge(domain,
			limiter.Charge{ID: c.ID, Policy: c.Policy, Reserve: c.Policy.Reserve != nil}, c.Name)
		if err := resetCharge(ctx, now, lookup, 0, report); err != nil {
			return report, err
		}
		if reset {
			a.service.Recorder().Forget(c)
		}
	}
	return report, nil
}

// resetCharge resets the counter of charge i if the report is not a preview, and adds it to the report.
func resetCharge(ctx context.Context, now limiter.Time, lookup *answer.Lookup, i int, report *live.Reset) (err error) {
	var used uint64
	if report.Done {
		used, err = lookup.Reset(ctx, now, i)
	} else if err = lookup.Decide(now); err == nil {
		used = lookup.Plan.Batch.Decisions[i].Before
	}
	if err != nil {
		return err
	}
	report.Counters++
	report.Used = limiter.SaturatingAdd(report.Used, used)
	return nil
}
