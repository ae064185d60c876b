package telemetry

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// sent is one series as the other side knows it.
type sent struct {
	name string
	tags []string
	// total and buckets are the values that were sent last.
	total   uint64
	buckets []uint64
	// begun is when the histogram began to count: native ones that have too many buckets begin again.
	begun time.Time
	round uint64 // in which it was seen last
	// ended says that its rule is gone, and long that a line was longer than a packet.
	ended, long bool
}

// grow takes a counter's new total and returns what it grew by. A counter that fell
// began anew.
func (s *sent) grow(total uint64) int64 {
	grown := total
	if total >= s.total {
		grown = total - s.total
	}
	s.total = total
	return int64(min(grown, math.MaxInt64))
}

// whole returns the whole number that a counter's value stands for.
func whole(f float64) uint64 {
	if f >= math.MaxUint64 {
		return math.MaxUint64
	}
	return uint64(max(f, 0))
}

// maxTimerValues bounds the values that one histogram sends in one flush.
const maxTimerValues = 100

// sample returns values that stand for what a histogram grew by since the last call:
// one for each observation, or, if there are more, [maxTimerValues] quantiles at even
// distances. So percentiles on the other side are right to the width of a bucket. How
// many observations there were is in the counters.
func (s *sent) sample(h *dto.Histogram) []float64 {
	buckets := h.GetBucket()
	if begun := h.GetCreatedTimestamp().AsTime(); len(s.buckets) != len(buckets)+1 || !begun.Equal(s.begun) {
		s.buckets, s.begun = make([]uint64, len(buckets)+1), begun
	}
	// The last bucket is all above the highest bound.
	grown := make([]uint64, len(s.buckets)) // cumulative
	for i := range grown {
		now := h.GetSampleCount()
		if i < len(buckets) {
			now = buckets[i].GetCumulativeCount()
		}
		grown[i] = now - min(now, s.buckets[i])
		s.buckets[i] = now
	}
	count := grown[len(grown)-1]
	n := min(count, maxTimerValues)
	values := make([]float64, 0, n)
	at := 0
	for i := range n {
		rank := (float64(i) + 0.5) / float64(n) * float64(count)
		for at < len(buckets) && float64(grown[at]) < rank {
			at++
		}
		values = append(values, within(buckets, grown, at, rank))
	}
	return values
}

// within returns the value of the observation of a rank, which is in bucket at. It
// assumes that the observations of a bucket lie at even distances.
func within(buckets []*dto.Bucket, grown []uint64, at int, rank float64) float64 {
	low, before := 0.0, uint64(0)
	if at > 0 {
		low, before = buckets[at-1].GetUpperBound(), grown[at-1]
	}
	if at == len(buckets) || math.IsInf(buckets[at].GetUpperBound(), 1) {
		return low // all that is known is that it is above
	}
	share := (rank - float64(before)) / float64(grown[at]-before)
	return low + (buckets[at].GetUpperBound()-low)*share
}
