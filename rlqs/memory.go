package rlqs

import "github.com/sluice-ratelimit/sluice/rlqs/division"

const (
	// MaxMemoryBytes is the greatest value that [Service.MemoryBytes] returns.
	MaxMemoryBytes = MaxStreams*(streamBytes+maxFieldBytes) + maxBucketBytes

	// maxBucketBytes bounds the memory of all buckets.
	maxBucketBytes = 48 << 20
	// streamBytes is the approximate memory of a stream, including its transport's part.
	streamBytes = 1 << 10
)

// MemoryBytes returns the approximate memory that the service uses for its clients. It takes no
// lock.
func (s *Service) MemoryBytes() int64 { return s.memoryBytes.Load() }

// updateGaugesLocked sets the metrics of streams and buckets, and the memory in use.
func (s *Service) updateGaugesLocked() division.Counts {
	m, counts := &s.options.Metrics.Quota, s.divider.Counts()
	m.Streams.Set(float64(len(s.streams)))
	m.Buckets.Set(float64(counts.Buckets))
	m.Shares.Set(float64(counts.Shares))
	s.memoryBytes.Store(int64(len(s.streams)*streamBytes + s.partialBytes + counts.Bytes))
	return counts
}
