package descriptors

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strconv"

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

// descriptor returns the digest of a descriptor with its fields from defaults, given the digest of
// the level below.
func (h *hasher) descriptor(c *rules.Descriptor, below digest) digest {
	metadata := ""
	if c.Metadata != nil {
		metadata = metadataText(c.Metadata)
	}
	b := h.buf[:0]
	for _, text := range []string{c.Key, c.Value, metadata} {
		b = append(strconv.AppendQuote(b, text), ' ')
	}
	for _, set := range []bool{
		rules.ValueOr(c.ShadowMode, false), c.QuotaMode, rules.ValueOr(c.DetailedMetric, false), c.ValueToMetric, c.ShareThreshold, c.List,
	} {
		b = append(strconv.AppendBool(b, set), ' ')
	}
	if c.Set != nil {
		b = c.Set.AppendDigest(b)
	}
	if c.Denied != nil {
		b = append(strconv.AppendQuote(b, c.Denied.String()), ' ')
	}
	if c.FirstWithRoom {
		b = append(b, "charge "...)
	}
	for i := range c.RateLimits {
		l := &c.RateLimits[i]
		b = append(strconv.AppendBool(b, l.Unlimited), ' ')
		b = append(strconv.AppendQuote(b, l.Name), ' ')
		if l.Shadow {
			b = append(b, "shadow "...)
		}
		if rules.ValueOr(l.Hidden, false) {
			b = append(b, "hidden "...)
		}
		b = append(b, rules.SoftFields(l.IsSoft(), &l.NotifyAt)...)
		if l.Table != "" {
			b = fmt.Appendf(b, "table %q ", l.Table)
		}
		if l.Counter != "" {
			b = fmt.Appendf(b, "counter %q ", l.Counter)
		}
		if len(l.Replaces) > 0 {
			b = fmt.Appendf(b, "%q ", slices.Sorted(slices.Values(l.Replaces)))
		}
		if l.Quota != nil {
			b = append(append(b, l.Quota.String()...), ' ')
		}
		if l.Unlimited {
			continue
		}
		p := l.Policy()
		for _, n := range []int64{
			int64(l.RequestsPerUnit), int64(l.Unit), int64(max(1, l.UnitMultiplier)), int64(p.Algorithm),
			int64(p.SubWindows), int64(p.Burst), int64(p.Slack), int64(p.MaxWait), int64(p.MaxWaiting),
		} {
			b = append(strconv.AppendInt(b, n, 10), ' ')
		}
		b = append(b, rules.CalendarFields(p.Calendar)...)
		b = append(b, rules.BlocksField(p.NoBlocks)...)
		if l.Reserve != nil {
			b = append(append(b, l.Reserve.String()...), ' ')
		}
		if l.Penalty != nil {
			b = append(append(b, rules.PenaltyText(l.Penalty)...), ' ')
		}
		if l.CountRefused != nil {
			b = append(strconv.AppendBool(b, *l.CountRefused), ' ')
		}
	}
	h.state.Write(b)
	h.buf = b
	h.add(below)
	return h.sum()
}
