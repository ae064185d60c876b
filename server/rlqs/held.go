package rlqs

import "github.com/sluice-ratelimit/sluice/quota"

const (
	// MostHeld is the most that [Service.Held] returns.
	MostHeld = MostStreams*(streamBytes+mostField) + mostBucketBytes

	// mostBucketBytes bounds the memory of all buckets.
	mostBucketBytes = 48 << 20
	// streamBytes is about what a stream takes, with what a transport has of it.
	streamBytes = 1 << 10
)

// Held returns about how many bytes the service holds for its clients, 0 without a service. It takes no lock.
func (s *Service) Held() int64 {
	if s == nil {
		return 0
	}
	return s.held.Load()
}

// measureLocked sets the metrics of streams, buckets and held memory.
func (s *Service) measureLocked() quota.Counts {
	m, counts := &s.options.Metrics.Quota, s.divider.Counts()
	m.Streams.Set(float64(len(s.streams)))
	m.Buckets.Set(float64(counts.Buckets))
	m.Shares.Set(float64(counts.Shares))
	s.held.Store(int64(len(s.streams)*streamBytes + s.parts + counts.Bytes))
	return counts
}
