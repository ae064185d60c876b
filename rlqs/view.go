package rlqs

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/rlqs/division"
	"github.com/sluice-ratelimit/sluice/server/quota"
)

// Bounds on a survey, which covers all buckets unless that takes too long.
const (
	surveyBatch = 2048 // buckets and shares visited without releasing the lock
	surveyTime  = 100 * time.Millisecond
	// MaxViews is the maximum number of buckets that [Service.Largest] returns.
	MaxViews = 20
)

// survey is a summary of the buckets, of all unless visiting them takes longer than surveyTime.
type survey struct {
	next     time.Duration // when the next survey may start
	set      *descriptors.Set
	largest  []rankedBucket
	rates    map[*descriptors.Rule]int64
	assigned map[*descriptors.Rule]float64
}

// rankedBucket is a bucket with the domain of its rule.
type rankedBucket struct {
	division.Summary
	domain string
}

// surveyLocked returns the last survey, or a new one, but not before a second, and 20 times the duration
// of the last one, have passed. The caller must hold s.surveyMu. surveyLocked locks s.mu for one
// batch of buckets at a time.
func (s *Service) surveyLocked() *survey {
	begun := s.options.Elapsed()
	set := s.options.Rules()
	if begun < s.lastSurvey.next && set == s.lastSurvey.set {
		return &s.lastSurvey
	}
	found := survey{set: set, rates: map[*descriptors.Rule]int64{}, assigned: map[*descriptors.Rule]float64{}}
	next, stop := iter.Pull(s.divider.Buckets())
	defer stop()
	for more := true; more && s.options.Elapsed()-begun < surveyTime; {
		more = s.extendSurvey(&found, next)
	}
	for r, rate := range found.rates {
		found.assigned[r] /= float64(max(rate, 1))
	}
	now := s.options.Elapsed()
	found.next = now + max(time.Second, 20*(now-begun))
	s.lastSurvey = found
	return &s.lastSurvey
}

// extendSurvey adds a batch of buckets to a survey. It reports whether there may be more.
func (s *Service) extendSurvey(found *survey, next func() (division.Bucket, bool)) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activeRulesLocked()
	for visited := 0; visited < surveyBatch; {
		key, ok := next()
		if !ok {
			return false
		}
		b, ok := s.divider.Summarize(key)
		visited += 1 + b.Shares
		r := s.ruleOf[b.Limit]
		if !ok || r == nil {
			continue // not divided, or its rules are no longer active
		}
		found.rates[r] += b.Rate
		found.assigned[r] += float64(b.AssignedRate)
		if len(found.largest) < MaxViews || b.Demand > found.largest[MaxViews-1].Demand {
			at, _ := slices.BinarySearchFunc(found.largest, b.Demand,
				func(a rankedBucket, demand float64) int { return cmp.Compare(demand, a.Demand) })
			found.largest = slices.Insert(found.largest[:min(len(found.largest), MaxViews-1)], at,
				rankedBucket{b, r.Domain()})
		}
	}
	return true
}

// AssignedRatios returns the assigned part of each divided limit. For a rule with several buckets
// it is the ratio of the sums.
func (s *Service) AssignedRatios() map[*descriptors.Rule]float64 {
	s.surveyMu.Lock()
	defer s.surveyMu.Unlock()
	return s.surveyLocked().assigned // never modified
}

// Largest returns up to [MaxViews] buckets with the most demand, in descending order, and the
// numbers of streams and buckets.
func (s *Service) Largest() (views []quota.View, streams, buckets int) {
	s.surveyMu.Lock()
	largest := s.surveyLocked().largest // never modified
	s.surveyMu.Unlock()
	for _, b := range largest {
		s.mu.Lock()
		v, ok := s.viewLocked(b.Bucket, b.domain)
		s.mu.Unlock()
		if ok {
			views = append(views, v)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return views, len(s.streams), s.divider.Counts().Buckets
}

// View returns a snapshot of the bucket of a descriptor.
func (s *Service) View(domain string, entries []descriptors.Entry) (quota.View, bool) {
	var keys []string
	u := usage{entries: make([]entry, 0, maxEntries)}
	for _, e := range entries {
		keys = append(keys, string(e.Key))
		u.addEntry(entry{e.Key, e.Value})
	}
	u.addEntry(entry{[]byte(OrderKey), []byte(strings.Join(keys, ","))})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.viewLocked(s.bucketOf([]byte(domain), appendID(nil, u.entries)), domain)
}

// perSecond converts a rate of package division to requests per second.
func perSecond(rate int64) float64 { return float64(rate) / division.Fill.Seconds() }

// viewLocked returns a snapshot of a bucket.
func (s *Service) viewLocked(key division.Bucket, domain string) (quota.View, bool) {
	found, ok := s.divider.View(s.options.Elapsed(), key)
	if !ok {
		return quota.View{}, false
	}
	u := usage{entries: make([]entry, 0, maxEntries)}
	u.readID([]byte(found.ID))
	rule, entries := (&reader{service: s, domain: []byte(domain)}).matchRule(s.activeRulesLocked(), &u)
	v := quota.View{
		Rule: rule, Entries: slices.Clone(entries), // the values point into found.ID
		Key:   identity.ID{Hi: key[0], Lo: key[1]},
		Limit: perSecond(found.Rate), Assigned: perSecond(found.AssignedRate),
		Unconfirmed: perSecond(found.UnconfirmedRate), Lost: perSecond(found.LostRate),
		LostFor: found.LostFor, Learning: found.Learning,
	}
	for _, share := range found.Shares {
		address := ""
		if st := s.streams[share.Stream]; st != nil {
			address = st.peer.Address
		}
		v.Shares = append(v.Shares, quota.Share{
			Stream: uint64(share.Stream), Address: address,
			Rate: perSecond(int64(share.Rate)), Demand: share.Demand, Confirmed: share.Confirmed,
		})
	}
	return v, rule != nil
}
