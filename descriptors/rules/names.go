package rules

import (
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// algorithms are the names of all algorithms, in the order of the limiter's numbers.
var algorithms = []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket"}

// AlgorithmNamed returns the algorithm of that name. Ok is false if there is none.
func AlgorithmNamed(name string) (a limiter.Algorithm, ok bool) {
	i := slices.Index(algorithms, name)
	return limiter.FixedWindow + limiter.Algorithm(i), i >= 0 //nolint:gosec // a small number
}

// AlgorithmName is the inverse of [AlgorithmNamed].
func AlgorithmName(a limiter.Algorithm) string {
	if a < limiter.FixedWindow || a > limiter.LeakyBucket {
		return "unknown"
	}
	return algorithms[a-limiter.FixedWindow]
}

// units are all units, shortest first, for diagnostics and the schema.
var units = []Unit{Second, Minute, Hour, Day, Week, Month, Year}

// UnitNames returns the names of all units, shortest unit first.
func UnitNames() []string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.String()
	}
	return names
}

// UnitNamed returns the unit of that name, in any letter case. Ok is false if there
// is none.
func UnitNamed(name string) (u Unit, ok bool) {
	for _, u := range units {
		if strings.EqualFold(name, u.String()) {
			return u, true
		}
	}
	return 0, false
}

// AlgorithmNames returns the values that the word algorithm accepts.
func AlgorithmNames() []string { return slices.Clone(algorithms) }
