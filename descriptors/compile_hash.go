package descriptors

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// fingerprint returns [Set.Hash]: 16 hexadecimal digits that depend on what the
// configurations say and on their order, not on where or how it is written, and
// on the text of the defaults.
func fingerprint(configs []rules.Config, defaults *rules.Defaults) string {
	f := fingerprinter{sha256.New()}
	f.number(uint64(len(configs)))
	for i := range configs {
		c := &configs[i]
		f.text(c.Domain)
		f.flags(c.AllOrNothing != nil, rules.Given(c.AllOrNothing, false))
		f.number(uint64(c.MaxCounters)) //nolint:gosec // any bits do
		f.descriptors(c.Descriptors)
	}
	if defaults != nil {
		f.h.Write(defaults.Sum[:])
	}
	return hex.EncodeToString(f.h.Sum(nil)[:8])
}

type fingerprinter struct{ h hash.Hash }

func (f fingerprinter) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	f.h.Write(b[:])
}

func (f fingerprinter) text(s string) {
	f.number(uint64(len(s)))
	f.h.Write([]byte(s))
}

func (f fingerprinter) flags(flags ...bool) {
	n := uint64(0)
	for i, set := range flags {
		if set {
			n |= 1 << i
		}
	}
	f.number(n)
}

func (f fingerprinter) descriptors(ds []rules.Descriptor) {
	f.number(uint64(len(ds)))
	for i := range ds {
		d := &ds[i]
		f.text(d.Key)
		f.text(d.Value)
		f.flags(d.ShadowMode, d.QuotaMode, d.DetailedMetric, d.ValueToMetric, d.ShareThreshold, d.List)
		metadata, err := json.Marshal(d.Metadata) // maps are sorted
		if err != nil {
			metadata = []byte(err.Error()) // not a value that Metadata may hold
		}
		f.text(string(metadata))
		f.number(uint64(len(d.RateLimits)))
		for j := range d.RateLimits {
			f.limit(&d.RateLimits[j])
		}
		f.descriptors(d.Descriptors)
	}
}

func (f fingerprinter) limit(l *rules.Limit) {
	f.flags(l.Unlimited, l.CountRefused != nil, l.CountRefused != nil && *l.CountRefused)
	f.number(uint64(l.RequestsPerUnit))
	f.number(uint64(l.Unit)) //nolint:gosec // any bits do
	f.number(uint64(l.UnitMultiplier))
	f.number(uint64(max(l.Algorithm, limiter.FixedWindow)))
	for _, n := range []*uint32{l.SubWindows, l.Burst, l.Slack, l.MaxWaiting} {
		f.flags(n != nil)
		if n != nil {
			f.number(uint64(*n))
		}
	}
	f.flags(l.MaxWait != nil)
	if l.MaxWait != nil {
		f.number(uint64(*l.MaxWait)) //nolint:gosec // any bits do
	}
	f.text(l.Name)
	f.number(uint64(len(l.Replaces)))
	for _, name := range l.Replaces {
		f.text(name)
	}
}
