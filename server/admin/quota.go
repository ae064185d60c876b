package admin

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/rlqs"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// quotaState returns the state of the rate limit quota service, or nil if no limit is divided and
// no Envoy is connected.
func (a *API) quotaState(now time.Time) *live.Quota {
	views, streams, buckets := a.quotas.Largest()
	if set := a.service.Rules(); streams+buckets == 0 && (set == nil || !set.Divides()) {
		return nil
	}
	q := &live.Quota{Streams: streams, Buckets: buckets, Largest: make([]live.QuotaBucket, len(views))}
	for i := range views {
		q.Largest[i] = a.quotaBucket(now, &views[i])
	}
	return q
}

// quotaBucketOf returns the bucket of a descriptor, or nil if no Envoy has it.
func (a *API) quotaBucketOf(now time.Time, domain string, entries []descriptors.Entry) *live.QuotaBucket {
	v, ok := a.quotas.ViewBucket(domain, entries)
	if !ok {
		return nil
	}
	b := a.quotaBucket(now, &v)
	return &b
}

// quotaBucket converts a bucket for the state.
func (a *API) quotaBucket(now time.Time, v *rlqs.View) live.QuotaBucket {
	after := func(d time.Duration) *time.Time {
		if d <= 0 {
			return nil
		}
		at := now.Add(d).UTC().Truncate(time.Second)
		return &at
	}
	recorder, hash := a.service.Recorder(), ""
	if recorder.Mode() != live.Off {
		hash = recorder.Hash(identity.ID{Hi: v.Key[0], Lo: v.Key[1]})
	}
	b := live.QuotaBucket{
		Domain: v.Rule.Domain(), Rule: v.Rule.Path(), Limit: v.Rule.Limits[0].String(), Hash: hash,
		LimitRate: rlqs.PerSecond(v.Rate), Assigned: rlqs.PerSecond(v.AssignedRate), Unconfirmed: rlqs.PerSecond(v.UnconfirmedRate), Lost: rlqs.PerSecond(v.LostRate),
		LostUntil: after(v.LostFor), LearningUntil: after(v.Learning), Holders: len(v.Shares), Shares: []live.QuotaShare{},
	}
	if recorder.Mode() == live.Clear {
		b.Descriptor = live.DescriptorText(v.Entries)
	}
	for _, s := range v.Shares {
		b.DemandRate += s.Demand
		b.Shares = append(b.Shares, live.QuotaShare{
			Address: v.Addresses[s.Stream], Stream: uint64(s.Stream), Share: rlqs.PerSecond(int64(s.Rate)), Demand: s.Demand, Confirmed: s.Confirmed,
		})
	}
	slices.SortStableFunc(b.Shares, func(a, b live.QuotaShare) int { return cmp.Compare(b.Share, a.Share) })
	b.Shares = b.Shares[:min(len(b.Shares), live.MaxQuotaShares)]
	return b
}

// updateQuotaGauges sets the gauges of divided limits to the assigned part of each limit, 0 if
// there are no assignments. Limits whose metrics contain values of requests have no gauge.
func (a *API) updateQuotaGauges() {
	rules, err := a.service.Active()
	if err != nil || !rules.Set.Divides() {
		return
	}
	ratios := a.quotas.AssignedRatios()
	for i, l := range rules.Set.Limits {
		if l.Rule.Divided() == nil || l.Rule.RuntimeMetric {
			continue
		}
		if ratio, ok := ratios[l.Rule]; ok {
			rules.Counters.Get(i).SetAssignedRatio(ratio)
		} else if c := rules.Counters.Existing(i); c != nil {
			c.SetAssignedRatio(0)
		}
	}
}
