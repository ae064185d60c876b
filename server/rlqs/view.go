package rlqs

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/quota"
)

// The bounds on what is looked at: a survey holds up reports.
const (
	mostSurveyed = 100_000
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
	inForce map[*descriptors.Rule]float64
}

// ranked is a bucket, and the domain of its rule.
type ranked struct {
	quota.Brief
	domain string
}

// surveyed returns a survey that is a second old at most, or a little more where there are many buckets. s.mu is held.
func (s *Service) surveyed() *survey {
	now := s.options.Elapsed()
	set := s.current()
	if now < s.survey.next && set == s.survey.set {
		return &s.survey
	}
	ruleOf := make(map[*quota.Limit]*descriptors.Rule, len(s.limits))
	for r, l := range s.limits {
		ruleOf[l] = r
	}
	rates := map[*descriptors.Rule]int64{}
	found := survey{set: set, inForce: map[*descriptors.Rule]float64{}, next: now + time.Second + time.Duration(min(s.divider.Counts().Buckets, mostSurveyed))*50*time.Microsecond}
	s.divider.Survey(now, mostSurveyed, func(b quota.Brief) {
		r := ruleOf[b.Limit]
		if r == nil {
			return // of rules that are no longer in force
		}
		rates[r] += b.Rate
		found.inForce[r] += float64(b.InForce)
		if len(found.largest) < MostViews || b.Demand > found.largest[MostViews-1].Demand {
			at, _ := slices.BinarySearchFunc(found.largest, b.Demand, func(a ranked, demand float64) int { return cmp.Compare(demand, a.Demand) })
			found.largest = slices.Insert(found.largest[:min(len(found.largest), MostViews-1)], at, ranked{b, r.Domain()})
		}
	})
	for r, rate := range rates {
		found.inForce[r] /= float64(max(rate, 1))
	}
	s.survey = found
	return &s.survey
}

// InForce returns the part that may be in force of each limit that is divided now: of a rule with several buckets, of all of
// their limits together.
func (s *Service) InForce() map[*descriptors.Rule]float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.surveyed().inForce // which nobody changes
}

// Largest returns the buckets with the most demand, the greatest first, at most [MostViews], and how many streams and buckets there
// are.
func (s *Service) Largest() (views []View, streams, buckets int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.surveyed().largest {
		if v, ok := s.view(b.Bucket, b.domain); ok {
			views = append(views, v)
		}
	}
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
	return s.view(s.bucketOf([]byte(domain), appendID(nil, u.entries)), domain)
}

// PerSecond is a rate of package quota in requests a second.
func PerSecond(rate int64) float64 { return float64(rate) / quota.Fill.Seconds() }

// view returns what is known of a bucket. s.mu is held.
func (s *Service) view(key quota.Bucket, domain string) (View, bool) {
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
	v.Rule, v.Entries = (&reader{name: []byte(domain)}).match(s.current(), &u)
	return v, v.Rule != nil
}
