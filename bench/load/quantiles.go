package load

import (
	"slices"
	"time"
)

// Quantiles are in microseconds; all are 0 without measurements.
type Quantiles struct{ P50, P90, P99, P999, Max float64 }

// quantiles sorts d and returns its quantiles.
func quantiles(d []time.Duration) Quantiles {
	if len(d) == 0 {
		return Quantiles{}
	}
	slices.Sort(d)
	at := func(q float64) float64 {
		return float64(d[int(q*float64(len(d)-1))].Nanoseconds()) / 1e3
	}
	return Quantiles{at(.5), at(.9), at(.99), at(.999), at(1)}
}
