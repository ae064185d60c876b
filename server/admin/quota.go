package admin

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/quota"
)

// quotaState returns the state of the rate limit quota service, or nil if no limit is divided and
// no Envoy is connected.
func (a *API) quotaState(now time.Time) *live.Quota {
	if a.quotas == nil {
		return nil
	}
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
	if a.quotas == nil {
		return nil
	}
	v, ok := a.quotas.View(domain, entries)
	if !ok {
		return nil
	}
	b := a.quotaBucket(now, &v)
	return &b
}

// quotaBucket converts a bucket for the state.
func (a *API) quotaBucket(now time.Time, v *quota.View) live.QuotaBucket {
	after := func(d time.Duration) *time.Time {
		if d <= 0 {
			return nil
		}
		at := now.Add(d).UTC().Truncate(time.Second)
		return &at
	}
	recorder := a.service.Recorder()
	hash := ""
	if recorder.Mode() != live.Off {
		hash = recorder.Hash(v.Key)
	}
	b := live.QuotaBucket{
		Domain: v.Rule.Domain(), Rule: v.Rule.Path(), Limit: v.Rule.Limits[0].String(), Hash: hash,
		LimitRate: v.Limit, Assigned: v.Assigned, Unconfirmed: v.Unconfirmed, Lost: v.Lost,
		LostUntil: after(v.LostFor), LearningUntil: after(v.Learning), Holders: len(v.Shares), Shares: []live.QuotaShare{},
	}
	if recorder.Mode() == live.Clear {
		b.Descriptor = live.DescriptorText(v.Entries)
	}
	for _, s := range v.Shares {
		b.DemandRate += s.Demand
		b.Shares = append(b.Shares, live.QuotaShare{
			Address: s.Address, Stream: s.Stream, Share: s.Rate, Demand: s.Demand, Confirmed: s.Confirmed,
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
	if err != nil || !rules.Set.Divides() || a.quotas == nil {
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
