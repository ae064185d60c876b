package simulate

import (
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// counterIDs gives counters identities by the order in which they appear. Names are hashed with a
// random key, and package store places counters by their identities, so results would vary.
type counterIDs struct {
	byHash map[identity.ID]identity.ID
	hashes []identity.ID // of the charges of the current batch
}

// idBytes is the approximate memory of one counter.
const idBytes = 80

// replace replaces the identities in b.
func (c *counterIDs) replace(b *limiter.Batch) {
	c.hashes = c.hashes[:0]
	for i := range b.Charges {
		hash := b.Charges[i].ID
		c.hashes = append(c.hashes, hash)
		id, ok := c.byHash[hash]
		if !ok {
			n := uint64(len(c.byHash)) + 1
			id = identity.ID{Hi: spread(2 * n), Lo: spread(2*n + 1)}
			c.byHash[hash] = id
		}
		b.Charges[i].ID = id
	}
}

// restore undoes the last replace.
func (c *counterIDs) restore(b *limiter.Batch) {
	for i := range b.Charges {
		b.Charges[i].ID = c.hashes[i]
	}
}

// spread maps numbers one to one, such that the results look random. It is the finaliser of
// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
func spread(n uint64) uint64 {
	n *= 0x9E3779B97F4A7C15
	n = (n ^ n>>30) * 0xBF58476D1CE4E5B9
	n = (n ^ n>>27) * 0x94D049BB133111EB
	return n ^ n>>31
}
