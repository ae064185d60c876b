package load

import (
	"math/rand/v2"
	"sync/atomic"
)

// A keySource returns key numbers, one for each call. It returns false when none
// is left. It belongs to one worker.
type keySource func() (uint64, bool)

// newKeys returns a worker's source. filled is shared by all workers: how many
// key numbers have been called already.
func newKeys(c *Config, rng *rand.Rand, filled *atomic.Uint64) keySource {
	switch {
	case c.Fill:
		return func() (uint64, bool) {
			key := filled.Add(1) - 1
			return key, key < c.Keys
		}
	case c.Zipf > 0:
		zipf := rand.NewZipf(rng, c.Zipf, 1, c.Keys-1)
		return func() (uint64, bool) { return zipf.Uint64(), true }
	default:
		return func() (uint64, bool) { return rng.Uint64N(c.Keys), true }
	}
}
