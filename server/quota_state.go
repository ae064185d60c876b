package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/rlqs"
)

// quotaState says what Envoys divide, nil if nothing is to be.
func (s *Server) quotaState(now time.Time) *live.Quota {
	views, streams, buckets := s.quotas.Largest()
	if set := s.service.Rules(); streams+buckets == 0 && (set == nil || !set.Divides()) {
		return nil
	}
	q := &live.Quota{Streams: streams, Buckets: buckets, Largest: make([]live.QuotaBucket, len(views))}
	for i := range views {
		q.Largest[i] = s.quotaBucket(now, &views[i])
	}
	return q
}

// quotaOf says what is known of the bucket of a descriptor, nil if no Envoy has it.
func (s *Server) quotaOf(now time.Time, domain string, entries []descriptors.Entry) *live.QuotaBucket {
	v, ok := s.quotas.Look(domain, entries)
	if !ok {
		return nil
	}
	b := s.quotaBucket(now, &v)
	return &b
}

// quotaBucket says what is known of a bucket.
func (s *Server) quotaBucket(now time.Time, v *rlqs.View) live.QuotaBucket {
	after := func(d time.Duration) *time.Time {
		if d <= 0 {
			return nil
		}
		at := now.Add(d).UTC().Truncate(time.Second)
		return &at
	}
	b := live.QuotaBucket{
		Domain: v.Rule.Domain(), Rule: v.Rule.Path(), Limit: v.Rule.Limits[0].String(), Hash: s.service.KeyHash(v.Key[0], v.Key[1]),
		LimitRate: rlqs.PerSecond(v.Rate), InForce: rlqs.PerSecond(v.InForce), Unconfirmed: rlqs.PerSecond(v.Unconfirmed), Lost: rlqs.PerSecond(v.Lost),
		LostUntil: after(v.LostFor), LearningUntil: after(v.Learning), Holders: len(v.Holders), Shares: []live.QuotaShare{},
	}
	if s.service.KeepsValues() {
		b.Descriptor = live.DescriptorText(v.Entries)
	}
	for _, h := range v.Holders {
		b.DemandRate += h.Demand
		b.Shares = append(b.Shares, live.QuotaShare{
			Address: v.Addresses[h.Holder], Stream: uint64(h.Holder), Share: rlqs.PerSecond(int64(h.Share)), Demand: h.Demand, Confirmed: h.Confirmed,
		})
	}
	slices.SortStableFunc(b.Shares, func(a, b live.QuotaShare) int { return cmp.Compare(b.Share, a.Share) })
	b.Shares = b.Shares[:min(len(b.Shares), live.MostQuotaShares)]
	return b
}
