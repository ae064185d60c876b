package rlqs

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/quota"
)

// The bounds on a survey, which is one of all buckets unless it takes too long.
const (
	surveyedAtOnce = 2048 // buckets and shares, while the service is locked
	surveyTime     = 100 * time.Millisecond
	// MostViews is how many buckets [Service.Largest] returns at most.
	MostViews = 20
)

// View is what is known of a bucket that is divided.
type View struct {
	quota.View
	Rule *descriptors.Rule
	// Entries are those of its descriptor.
	Entries []descriptors.Entry
	Key     quota.Bucket
	// Addresses are those of the machines of holders that have one.
	Addresses map[quota.Holder]string
}

// survey is what was found in all buckets, or in many.
type survey struct {
	next    time.Duration // when it is old
	set     *descriptors.Set
	largest []ranked
	rates   map[*descriptors.Rule]int64
	inForce map[*descriptors.Rule]float64
}

// ranked is a bucket, and the domain of its rule.
type ranked struct {
	quota.Brief
	domain string
}

// surveyLocked returns a survey that is a second old at most, or a little more where there are many buckets. s.surveying is
// held. s.mu is locked for a few buckets at a time, and released for others in between.
func (s *Service) surveyLocked() *survey {
	begun, set := s.options.Elapsed(), s.options.Rules()
	if begun < s.surveyed.next && set == s.surveyed.set {
		return &s.surveyed
	}
	found := survey{set: set, rates: map[*descriptors.Rule]int64{}, inForce: map[*descriptors.Rule]float64{}}
	next, stop := iter.Pull(s.divider.Buckets())
	defer stop()
	for more := true; more && s.options.Elapsed()-begun < surveyTime; {
		more = s.surveySome(&found, next)
	}
	for r, rate := range found.rates {
		found.inForce[r] /= float64(max(rate, 1))
	}
	now := s.options.Elapsed()
	found.next = now + max(time.Second, 20*(now-begun))
	s.surveyed = found
	return &s.surveyed
}

// surveySome adds some buckets to a survey. It reports whether there may be more.
func (s *Service) surveySome(found *survey, next func() (quota.Bucket, bool)) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.currentLocked()
	for looked := 0; looked < surveyedAtOnce; {
		key, ok := next()
		if !ok {
			return false
		}
		b, ok := s.divider.Brief(key)
		looked += 1 + b.Shares
		r := s.ruleOf[b.Limit]
		if !ok || r == nil {
			continue // not divided, or of rules that are no longer active
		}
		found.rates[r] += b.Rate
		found.inForce[r] += float64(b.InForce)
		if len(found.largest) < MostViews || b.Demand > found.largest[MostViews-1].Demand {
			at, _ := slices.BinarySearchFunc(found.largest, b.Demand, func(a ranked, demand float64) int { return cmp.Compare(demand, a.Demand) })
			found.largest = slices.Insert(found.largest[:min(len(found.largest), MostViews-1)], at, ranked{b, r.Domain()})
		}
	}
	return true
}

// InForce returns the part that may be in force of each limit that is divided now: of a rule with several buckets, of all of
// their limits together.
func (s *Service) InForce() map[*descriptors.Rule]float64 {
	s.surveying.Lock()
	defer s.surveying.Unlock()
	return s.surveyLocked().inForce // which nobody changes
}

// Largest returns the buckets with the most demand, the greatest first, at most [MostViews], and how many streams and buckets there
// are.
func (s *Service) Largest() (views []View, streams, buckets int) {
	s.surveying.Lock()
	largest := s.surveyLocked().largest // which nobody changes
	s.surveying.Unlock()
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

// Look returns what is known of the bucket of a descriptor.
func (s *Service) Look(domain string, entries []descriptors.Entry) (View, bool) {
	var keys []string
	u := usage{entries: make([]entry, 0, mostEntries)}
	for _, e := range entries {
		keys = append(keys, string(e.Key))
		u.add(entry{e.Key, e.Value})
	}
	u.add(entry{[]byte(OrderKey), []byte(strings.Join(keys, ","))})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.viewLocked(s.bucketOf([]byte(domain), appendID(nil, u.entries)), domain)
}

// PerSecond is a rate of package quota in requests a second.
func PerSecond(rate int64) float64 { return float64(rate) / quota.Fill.Seconds() }

// viewLocked returns what is known of a bucket.
func (s *Service) viewLocked(key quota.Bucket, domain string) (View, bool) {
	found, ok := s.divider.View(s.options.Elapsed(), key)
	if !ok {
		return View{}, false
	}
	v := View{View: found, Key: key, Addresses: map[quota.Holder]string{}}
	for _, h := range v.Holders {
		if st := s.streams[h.Holder]; st != nil && st.peer.Address != "" {
			v.Addresses[h.Holder] = st.peer.Address
		}
	}
	u := usage{entries: make([]entry, 0, mostEntries)}
	u.readID([]byte(v.ID))
	rule, entries := (&reader{service: s, name: []byte(domain)}).match(s.currentLocked(), &u)
	v.Rule, v.Entries = rule, slices.Clone(entries) // whose values are in v.ID
	return v, v.Rule != nil
}
