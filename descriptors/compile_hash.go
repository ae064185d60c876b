package descriptors

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// digest is a hash of a part of the rules; [Set.Hash] is that of all.
//
// It depends on the rules with their defaults, not on their places or spelling, so the same rules
// in other files or from xDS have the same digest. The order of descriptors matters only for
// wildcards, of which the first match applies.
type digest [sha256.Size]byte

// hasher makes digests, with one hash and one buffer for all.
type hasher struct {
	state hash.Hash
	buf   []byte
}

func (h *hasher) add(d digest) { h.state.Write(d[:]) }

// sum returns the digest of the bytes written since the last call.
func (h *hasher) sum() (d digest) {
	h.state.Sum(d[:0])
	h.state.Reset()
	return d
}

// set returns [Set.Hash] for the digests of all domains, in the order of their names.
func (h *hasher) set(domains []digest) string {
	for _, d := range domains {
		h.add(d)
	}
	d := h.sum()
	return hex.EncodeToString(d[:8])
}

// domain returns the digest of a domain. allOrNothing is the value from rules and defaults;
// [Options.AllOrNothing] is not part of the rules.
func (h *hasher) domain(d *domain, allOrNothing bool, below digest) digest {
	fmt.Fprintf(h.state, "%q %t %d ", d.name, allOrNothing, d.maxCounters)
	if d.denied != nil {
		fmt.Fprintf(h.state, "%q ", d.denied)
	}
	if d.exempt != nil {
		fmt.Fprint(h.state, "exempt ")
		h.add(d.exemptDigest)
	}
	h.add(below)
	return h.sum()
}

// levelDigests are the digests of the descriptors of one level.
type levelDigests struct {
	// literal is the sum of those without a wildcard, which does not depend on their order.
	literal  [4]uint64
	literals int
	wild     []digest // in file order
}

func (all *levelDigests) add(n *node, d digest) {
	if isWildcard(n.key) || isWildcard(n.value) {
		all.wild = append(all.wild, d)
		return
	}
	all.literals++
	for i := range all.literal {
		all.literal[i] += binary.BigEndian.Uint64(d[8*i:])
	}
}

// level returns the digest of the descriptors of one level.
func (h *hasher) level(all *levelDigests) digest {
	for _, d := range all.wild {
		h.add(d)
	}
	fmt.Fprintf(h.state, " %d %x ", all.literals, all.literal)
	return h.sum()
}

// descriptor returns the digest of a compiled descriptor, given the digest of the level below. set has
// its values, or is nil. Of a rule it depends on what [Changes] show, so the two agree.
func (h *hasher) descriptor(n *node, set *rules.ValueSet, below digest) digest {
	b := fmt.Appendf(h.buf[:0], "%q %q %t %t ", n.key, n.value, n.share, n.valueToMetric)
	if set != nil {
		b = set.AppendDigest(b)
	}
	b = append(b, n.rule.text()...)
	h.state.Write(b)
	h.buf = b
	h.add(below)
	return h.sum()
}
