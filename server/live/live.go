package live

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Modes of a [Recorder]: whether it records denied keys, and whether it stores their values.
const (
	Off        = "off"
	Hashed     = "hashed"      // values only after [Recorder.Unmask]
	HashedOnly = "hashed-only" // never values
	Clear      = "clear"
)

// Recorder records denied and unmatched requests. Its methods may be called concurrently.
type Recorder struct {
	mode  string
	key   identity.Key
	namer *descriptors.Namer // nil unless the counters are in a store
	now   atomic.Uint32      // Unix seconds of the last SetTime or Tick
	clear atomic.Bool        // whether values are stored: in mode Clear, or while unmasked

	mu       sync.Mutex
	period   telemetry.Period
	domains  map[string]*Domain // by name
	overflow *Domain            // shared by the domains beyond MaxDomains
	unmasked unmasked
}

// unmasked is the time for which [Recorder.Unmask] stores values; zero without one.
type unmasked struct {
	until time.Time     // the end, as shown to people
	end   time.Duration // the end as elapsed time, which a change of the clock does not affect
}

// Domain records the denied and unmatched requests of a domain.
type Domain struct {
	recorder  *Recorder
	sketch    atomic.Pointer[sketch] // nil until the first denial
	unmatched atomic.Pointer[unmatched]
}

// New returns an empty Recorder. Mode is [Off], [Hashed], [HashedOnly] or [Clear]. Key is the secret of the
// hashes of keys; replicas with the same key have comparable hashes. Namer names the counters in a
// store, and is nil if the counters are in memory.
func New(mode string, key identity.Key, namer *descriptors.Namer) *Recorder {
	l := &Recorder{mode: mode, key: key, namer: namer, domains: map[string]*Domain{}}
	l.clear.Store(mode == Clear)
	l.overflow = l.newDomain()
	return l
}

func (l *Recorder) newDomain() *Domain {
	d := &Domain{recorder: l}
	d.unmatched.Store(newUnmatched(&l.now))
	return d
}

// Mode returns [Off], [Hashed], [HashedOnly] or [Clear].
func (l *Recorder) Mode() string { return l.mode }

// SetRules sets the active rules. It returns the recorders of their domains, in the order of
// [descriptors.Set.Domains]. Denied keys stay if the rules still have their limits. Unmatched
// descriptors are forgotten.
func (l *Recorder) SetRules(set *descriptors.Set) []*Domain {
	names := set.Domains()
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.domains
	l.domains = make(map[string]*Domain, min(len(names), MaxDomains))
	all := make([]*Domain, len(names))
	for i, name := range names {
		d := l.overflow
		if len(l.domains) < MaxDomains {
			if d = old[name]; d == nil {
				d = l.newDomain()
			}
			l.domains[name] = d
		}
		all[i] = d
	}
	for name, d := range old {
		if s := d.sketch.Load(); s != nil && l.domains[name] == nil {
			s.removeTexts()
		}
	}
	for d := range l.domainsLocked {
		d.unmatched.Store(newUnmatched(&l.now))
		if s := d.sketch.Load(); s != nil {
			s.setRules(set)
		}
	}
	return all
}

// A Denial is a charge that denied its request.
type Denial struct {
	// ID identifies the counter of the charge.
	ID identity.ID
	// Limit is the limit of the rule, or nil for a limit in the request.
	Limit *descriptors.Limit
	// Policy is the policy of the counter. It is copied if it is not that of Limit.
	Policy *limiter.Policy
	// Domain is the request's domain.
	Domain string
	// Entries are the entries of the request's descriptor. Their values are only stored in mode
	// [Clear], and after [Recorder.Unmask].
	Entries []descriptors.Entry
	// Name is the counter's name in a store. If the name ends in a hash, the hash is recorded.
	Name []byte
	// Duplicate is true if another limit has already denied the same descriptor. The domain counts
	// it once.
	Duplicate bool
}

// RecordDenial counts a denial. It retains Limit and Domain; the caller may reuse all other memory
// of the denial.
func (d *Domain) RecordDenial(denial *Denial) {
	if d.recorder.mode == Off {
		return
	}
	s := d.sketch.Load()
	if s == nil {
		d.sketch.CompareAndSwap(nil, newSketch(d.recorder))
		s = d.sketch.Load()
	}
	s.add(denial)
}

// HasKey reports whether the counter id is among the denied keys.
func (d *Domain) HasKey(id identity.ID) bool {
	s := d.sketch.Load()
	if s == nil {
		return false
	}
	_, _, ok := s.find(id)
	return ok
}

// RecordPenalty records the remaining time of a penalty of the counter id. It must be called after
// RecordDenial.
func (d *Domain) RecordPenalty(id identity.ID, left time.Duration) {
	if s := d.sketch.Load(); s != nil {
		s.setPenaltyEnd(id, left)
	}
}

// SetTime sets the time, in seconds, of the denials that follow.
func (l *Recorder) SetTime(now time.Time) (changed bool) {
	seconds := uint32(now.Unix()) //nolint:gosec // until 2106
	return l.now.Swap(seconds) != seconds
}

// Tick sets the time. It must be called each second, and before a state is read. Concurrent callers
// may pass times slightly out of order. A time before the start of the interval by an interval or
// more means that the clock was set back, and also ends the interval.
func (l *Recorder) Tick(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	newSecond := l.SetTime(now)
	intervalEnds := l.period.Advance(now)
	for d := range l.domainsLocked {
		u := d.unmatched.Load()
		s := d.sketch.Load()
		if newSecond {
			u.budget.Store(unmatchedBudget)
		}
		if !intervalEnds {
			continue
		}
		u.rotate(l.now.Load())
		if s != nil {
			s.rotate(l.now.Load())
		}
	}
}

// domainsLocked yields all domains, and then the overflow domain.
func (l *Recorder) domainsLocked(yield func(*Domain) bool) {
	for _, d := range l.domains {
		if !yield(d) {
			return
		}
	}
	yield(l.overflow)
}

// Hash returns the keyed hash of a counter's ID: 16 hexadecimal digits, which do not reveal the ID.
func (l *Recorder) Hash(id identity.ID) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], id.Hi)
	binary.BigEndian.PutUint64(b[8:], tagOf(id))
	return l.mac("denied key", b[:])
}

// StoresValues reports whether values are stored at present.
func (l *Recorder) StoresValues() bool { return l.clear.Load() }

// Describe returns the hash of a counter, unless the mode is [Off], and its descriptor while values
// are stored.
func (l *Recorder) Describe(id identity.ID, entries []descriptors.Entry) (hash, descriptor string) {
	if l.mode != Off {
		hash = l.Hash(id)
	}
	if l.StoresValues() {
		descriptor = DescriptorText(entries)
	}
	return hash, descriptor
}

// HashKey returns a fingerprint of the hash key. Hashes of replicas with the same fingerprint are
// comparable.
func (l *Recorder) HashKey() string { return l.mac("hash key", nil) }

func (l *Recorder) mac(label string, b []byte) string {
	h := hmac.New(sha256.New, l.key[:])
	h.Write([]byte(label))
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Denials describes the denials of a domain.
type Denials struct {
	Keys []Key
	// Omitted is the number of further keys that would be in the state without the bound on keys.
	Omitted int
	// PerSecond is the rate of denied descriptors.
	PerSecond float64
}

// candidate is a key that may be in the state. Formatting takes longer than sorting, so only the
// keys of the state are formatted.
type candidate struct {
	denied

	sketch *sketch
	domain string
	all    uint64 // recent denials of the domain
}

func compareCandidates(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.recent, a.recent), cmp.Compare(b.total, a.total))
}

// Denials returns the denials of each domain, by name, with the most denied keys of all domains, at
// most maxKeys.
func (l *Recorder) Denials(maxKeys int) map[string]*Denials {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found, one []candidate
	for name, d := range l.domains {
		one = appendCandidates(one[:0], name, d)
		found = append(found, one...)
	}
	found = appendCandidates(found, "", l.overflow)
	slices.SortFunc(found, compareCandidates)
	all := map[string]*Denials{}
	period := l.period.Seconds(l.period.CalledAt)
	keys := 0
	for i := range found {
		c := &found[i]
		d := all[c.domain]
		if d == nil {
			d = &Denials{Keys: []Key{}, PerSecond: float64(c.all) / period}
			all[c.domain] = d
		}
		switch {
		case len(d.Keys)+d.Omitted == MaxKeys:
		case keys == maxKeys:
			d.Omitted++
		default:
			keys++
			d.Keys = append(d.Keys, l.newKey(c, period))
		}
	}
	for _, d := range all {
		slices.SortFunc(d.Keys, CompareKeys)
	}
	return all
}

// appendCandidates appends the most denied keys that d has recorded to found, which is empty unless
// name is. Name is the domain, or "" for the overflow domain, of which it appends all keys, because
// they belong to several domains.
func appendCandidates(found []candidate, name string, d *Domain) []candidate {
	s := d.sketch.Load()
	n := len(found)
	if s == nil {
		return found
	}
	all := s.read(func(d denied) {
		found = append(found, candidate{denied: d, sketch: s, domain: cmp.Or(d.own.domain, name)})
	})
	if name != "" {
		slices.SortFunc(found, compareCandidates)
		found = found[:min(len(found), MaxKeys)]
	}
	for i := range found[n:] {
		c := &found[n+i]
		c.all = all
		if c.limit != nil {
			c.domain = c.limit.Rule.Domain()
		}
	}
	return found
}

func (l *Recorder) newKey(c *candidate, period float64) Key {
	k := Key{
		Hash: l.Hash(c.id), Descriptor: c.text, PerSecond: float64(c.recent) / period,
		Denied: c.total, Since: seconds(c.first), Last: seconds(c.last),
	}
	if c.limit != nil {
		k.Rule = c.limit.Rule.Path()
		k.Limit = c.limit.String()
		k.Name = c.limit.Name
		k.Unit = UnitOf(c.limit)
	}
	if c.own.domain != "" {
		k.OwnLimit = rules.RateText(&c.own.policy)
		if c.limit != nil && c.limit.Table != nil {
			k.Table = c.limit.Table.Name()
		}
	}
	if k.charge = (&limiter.Charge{ID: c.id, Policy: c.policy()}); k.charge.Policy.Algorithm == limiter.Concurrency {
		k.Permits = uint64(k.charge.Policy.Limit)
	}
	if c.end > 0 {
		k.PenaltyUntil = new(seconds(c.end))
	}
	if c.all > 0 {
		k.Share = float64(c.recent) / float64(c.all)
	}
	return k
}
