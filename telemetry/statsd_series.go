package telemetry

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
)

type sentSeries struct {
	name string
	tags []string
	// total and buckets are the values sent last.
	total   uint64
	buckets []uint64
	// created is when the histogram started to count: native histograms with too many buckets are
	// reset.
	created time.Time
	round   uint64 // round of the last flush that contained it
	// ended is true if its rule was removed, oversized if a line was longer than a packet.
	ended, oversized bool
}

// delta returns the increase of a counter since the last call. A counter that fell was reset.
func (s *sentSeries) delta(total uint64) int64 {
	grown := total
	if total >= s.total {
		grown = total - s.total
	}
	s.total = total
	return int64(min(grown, math.MaxInt64))
}

func toUint(f float64) uint64 {
	if f >= math.MaxUint64 {
		return math.MaxUint64
	}
	return uint64(max(f, 0))
}

// maxTimerValues bounds the values that one histogram sends in one flush.
const maxTimerValues = 100

// sample returns values that represent the increase of a histogram since the last call: one for
// each observation, or, if there are more, [maxTimerValues] evenly spaced quantiles. Percentiles of
// the server are therefore exact to the width of a bucket. The number of observations is in the
// counters.
func (s *sentSeries) sample(h *dto.Histogram) []float64 {
	buckets := h.GetBucket()
	if created := h.GetCreatedTimestamp().AsTime(); len(s.buckets) != len(buckets)+1 || !created.Equal(s.created) {
		s.buckets = make([]uint64, len(buckets)+1)
		s.created = created
	}
	// The last bucket contains all values above the highest bound.
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
		values = append(values, interpolate(buckets, grown, at, rank))
	}
	return values
}

// interpolate returns the value of the observation with the given rank, which is in bucket at. It
// assumes that the observations of a bucket are evenly spaced.
func interpolate(buckets []*dto.Bucket, grown []uint64, at int, rank float64) float64 {
	low := 0.0
	before := uint64(0)
	if at > 0 {
		low = buckets[at-1].GetUpperBound()
		before = grown[at-1]
	}
	if at == len(buckets) || math.IsInf(buckets[at].GetUpperBound(), 1) {
		return low // the bucket has no upper bound
	}
	share := (rank - float64(before)) / float64(grown[at]-before)
	return low + (buckets[at].GetUpperBound()-low)*share
}
