package telemetry

import (
	"math"

	dto "github.com/prometheus/client_model/go"
)

// maxTimerValues bounds the values that one histogram sends in one flush.
const maxTimerValues = 100

// sample returns values that stand for what a histogram grew by since the last call:
// one for each observation, or, if there are more, [maxTimerValues] quantiles at even
// distances. So percentiles on the other side are right to the width of a bucket. How
// many observations there were is in the counters.
func (s *sent) sample(h *dto.Histogram) []float64 {
	buckets := h.GetBucket()
	if len(s.buckets) != len(buckets)+1 {
		s.buckets = make([]uint64, len(buckets)+1)
	}
	// The last bucket is all above the highest bound.
	grown := make([]uint64, len(s.buckets)) // cumulative
	for i := range grown {
		now := h.GetSampleCount()
		if i < len(buckets) {
			now = buckets[i].GetCumulativeCount()
		}
		grown[i] = now
		if now >= s.buckets[i] {
			grown[i] = now - s.buckets[i]
		}
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
