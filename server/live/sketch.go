package live

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// A sketch has sets*ways entries.
const (
	sets = 32
	ways = 8 // the tags of a set fill one cache line
)

// Durations of a sketch.
const (
	// interval is the time after which counts restart.
	interval = telemetry.Interval
	// forgetAfter is how long a key stays without a denial.
	forgetAfter = time.Minute
	// idleBound is the number of intervals without a denial after which a key is removed. Intervals
	// are counted because the clock may be set.
	idleBound = uint8(forgetAfter/interval) + 1
)

// A sketch finds the most frequently denied keys of a domain. A key is a counter: a rule's limit
// and the values of a client.
//
// It implements Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent
// and top-k elements in data streams", 2005) with sets: the hash of a key selects a set of eight
// entries. A new key replaces the one with the smallest count and inherits this count as its
// possible error. A key with more than 1/256 of the denials is found with near certainty, and in a
// flood of keys that are each denied once, no key appears frequent. Counts restart in each
// interval, so that a past flood does not hide the current one.
//
// A denial of a known key compares up to eight tags and makes one atomic addition. A new key needs
// the lock of its set. If another goroutine holds the lock, the denial is not counted, because
// requests must not wait here.
type sketch struct {
	now   *atomic.Uint32              // Unix seconds of the last Tick
	clear *atomic.Bool                // whether texts are stored
	texts atomic.Pointer[[sets]texts] // nil until a text is stored
	sets  [sets]set
	// names contains the hashes in the counters' names in a store, zero for names with values. It
	// is nil without a store.
	names *[sets][ways]descriptors.NameSum
	namer *descriptors.Namer
	// duplicates is the number of denials in this interval with [Denial].Duplicate. pastDuplicates
	// is the number in the last interval, protected by [Recorder].mu.
	duplicates     atomic.Uint64
	pastDuplicates uint64
	// ownPolicies contains the policies of counters that do not use their rule's policy. It is nil
	// until there is one.
	ownPolicies atomic.Pointer[[sets][ways]ownPolicy]
}

// ownPolicy is a copy of the policy of a counter whose numbers come from a request or a table row.
// It is copied because the memory of such a policy is reused. It is protected by the lock of the
// key's set.
type ownPolicy struct {
	policy limiter.Policy // including its Reserve
	domain string         // domain of the request; empty if the counter uses its rule's policy
}

// set contains eight keys. The fields that a denial reads are in two cache lines.
type set struct {
	// tags contains the low halves of the IDs, 0 for free entries. They are written under mu.
	tags [ways]atomic.Uint64
	// hits contains the denials of this interval, including inherited ones, and past those of the
	// last interval.
	hits [ways]atomic.Uint32
	past [ways]uint32
	// ends contains the ends of penalties, in Unix seconds; 0 for none.
	ends [ways]atomic.Uint32
	mu   sync.Mutex

	entries [ways]entry
	// lost is the number of denials in this interval of keys that no longer have an entry, and
	// pastLost the number in the last interval.
	lost, pastLost uint32
}

// texts contains the texts of the keys of a set. They are protected by the set's lock.
type texts struct {
	stored atomic.Uint32 // a bit for each key with a text; written under the lock
	all    *[ways]text   // nil until a text is stored
}

// entry contains further data of a key. It is protected by the set's lock.
type entry struct {
	limit *descriptors.Limit // nil for a limit in requests
	high  uint64             // high half of the ID
	total uint64             // denials before this interval
	// inherited is the part of hits that belongs to replaced keys.
	inherited uint32
	// first and last are the times of the first and last denial, in Unix seconds.
	first, last uint32
	// idle is the number of intervals since the last denial.
	idle uint8
}

// certainHits returns the denials of key i in this interval without inherited ones.
func (s *set) certainHits(i int) uint32 { return s.certainPart(i, s.hits[i].Load()) }

func (s *set) certainPart(i int, hits uint32) uint32 { return hits - min(hits, s.entries[i].inherited) }

// weight returns the count by which the keys of a set are compared.
func (s *set) weight(i int) uint32 { return s.hits[i].Load() + s.past[i] }

func newSketch(l *Recorder) *sketch {
	s := &sketch{now: &l.now, clear: &l.clear, namer: l.namer}
	if l.namer != nil {
		s.names = new([sets][ways]descriptors.NameSum)
	}
	return s
}

func tagOf(id identity.ID) uint64 { return max(1, id.Lo) }

// add counts a denial.
func (s *sketch) add(denial *Denial) {
	switch set, i, ok := s.find(denial.ID); {
	case ok:
		// The number of a row may have changed, so the policy is stored again in each interval. A key
		// that was first denied before [Recorder.Unmask] has no text.
		refresh := set.hits[i].Add(1) == 1 && s.ownPolicies.Load() != nil
		if (refresh || s.clear.Load() && !s.hasText(denial.ID, i)) && set.mu.TryLock() {
			if set.tags[i].Load() == tagOf(denial.ID) {
				if refresh {
					s.storeOwnPolicy(denial.ID, i, denial)
				}
				s.storeTextLocked(denial.ID, i, denial.Entries)
			}
			set.mu.Unlock()
		}
	case set.mu.TryLock():
		s.addLocked(set, denial)
		set.mu.Unlock()
	default:
		return // not counted
	}
	if denial.Duplicate {
		s.duplicates.Add(1)
	}
}

// find returns the set and index of a key. It does not need the lock.
func (s *sketch) find(id identity.ID) (at *set, i int, ok bool) {
	at = &s.sets[id.Hi%sets]
	for i := range at.tags {
		if at.tags[i].Load() == tagOf(id) {
			return at, i, true
		}
	}
	return at, 0, false
}

// addLocked adds a key that find did not find. Denials of the replaced key that other goroutines
// record at the same time may be counted for the new key, at most one per processor.
func (s *sketch) addLocked(set *set, denial *Denial) {
	id := denial.ID
	at := 0
	smallest := ^uint32(0)
	free := false
	for i := range set.tags {
		switch set.tags[i].Load() {
		case tagOf(id): // another goroutine has added the key
			set.hits[i].Add(1)
			return
		case 0:
			at = i
			smallest = 0
			free = true
		default:
			// A key without recent denials has weight 0, but is not replaced while there is a free
			// entry.
			if weight := set.weight(i); !free && weight < smallest {
				at = i
				smallest = weight
			}
		}
	}
	set.addLostLocked(at)
	now := s.now.Load()
	set.entries[at] = entry{limit: denial.Limit, high: id.Hi, inherited: smallest, first: now, last: now}
	set.past[at] = 0
	set.hits[at].Store(smallest + 1)
	set.ends[at].Store(0)
	s.storeTextLocked(id, at, denial.Entries)
	if s.names != nil {
		s.names[id.Hi%sets][at], _ = s.namer.Sum(denial.Name) // zero if the name has no hash
	}
	s.storeOwnPolicy(id, at, denial)
	set.tags[at].Store(tagOf(id))
}

// hasText reports whether key i of the set of id has a text.
func (s *sketch) hasText(id identity.ID, i int) bool {
	t := s.texts.Load()
	return t != nil && t[id.Hi%sets].stored.Load()>>i&1 == 1
}

// storeTextLocked stores the text of a key, or removes that of a replaced key if texts are not
// stored.
func (s *sketch) storeTextLocked(id identity.ID, at int, entries []descriptors.Entry) {
	all := s.texts.Load()
	if all == nil {
		if !s.clear.Load() {
			return
		}
		s.texts.CompareAndSwap(nil, new([sets]texts))
		all = s.texts.Load()
	}
	t := &all[id.Hi%sets]
	if !s.clear.Load() {
		t.stored.And(^uint32(1 << at))
		return
	}
	if t.all == nil {
		t.all = new([ways]text)
	}
	t.all[at].write(entries)
	t.stored.Or(1 << at)
}

// removeTexts overwrites all texts, so that a dump of the memory does not contain them.
func (s *sketch) removeTexts() {
	all := s.texts.Load()
	if all == nil {
		return
	}
	for i := range s.sets {
		s.sets[i].mu.Lock()
		all[i].stored.Store(0)
		if all[i].all != nil {
			clear(all[i].all[:])
		}
		all[i].all = nil
		s.sets[i].mu.Unlock()
	}
}

// freeLocked frees an entry. It does nothing if the entry is free.
func (s *set) freeLocked(at int) {
	if s.tags[at].Load() == 0 {
		return
	}
	s.addLostLocked(at)
	s.tags[at].Store(0)
	s.hits[at].Store(0)
	s.past[at] = 0
	s.entries[at].limit = nil
}

// addLostLocked adds the denials of an entry that is about to be freed or replaced to lost and
// pastLost.
func (s *set) addLostLocked(at int) {
	s.lost += s.certainHits(at)
	s.pastLost += s.past[at]
}

// storeOwnPolicy stores the policy of the counter of a new key, unless it is the rule's policy.
func (s *sketch) storeOwnPolicy(id identity.ID, at int, denial *Denial) {
	hasOwn := denial.Policy != nil && (denial.Limit == nil || denial.Policy != &denial.Limit.Policy)
	policies := s.ownPolicies.Load()
	if policies == nil {
		if !hasOwn {
			return
		}
		s.ownPolicies.CompareAndSwap(nil, new([sets][ways]ownPolicy))
		policies = s.ownPolicies.Load()
	}
	o := &policies[id.Hi%sets][at]
	o.domain = ""
	if hasOwn {
		o.domain = denial.Domain
		o.policy = denial.Policy.Clone(o.policy.Reserve)
	}
}

// setPenaltyEnd sets the remaining time of the penalty of a key.
func (s *sketch) setPenaltyEnd(id identity.ID, left time.Duration) {
	if set, i, ok := s.find(id); ok {
		end := int64(s.now.Load()) + int64(left/time.Second)
		if left%time.Second > 0 {
			end++
		}
		set.ends[i].Store(uint32(min(end, math.MaxUint32))) //nolint:gosec // not negative
	}
}

func (s *sketch) forget(id identity.ID) {
	set := &s.sets[id.Hi%sets]
	set.mu.Lock()
	defer set.mu.Unlock()
	if _, i, ok := s.find(id); ok {
		set.freeLocked(i)
	}
}

// rotate ends the interval.
func (s *sketch) rotate(now uint32) {
	s.pastDuplicates = s.duplicates.Swap(0)
	for i := range s.sets {
		set := &s.sets[i]
		set.mu.Lock()
		set.pastLost = set.lost
		set.lost = 0
		for j := range set.entries {
			e := &set.entries[j]
			if set.tags[j].Load() == 0 {
				continue
			}
			hits := set.certainPart(j, set.hits[j].Swap(0))
			set.past[j] = hits
			e.inherited = 0
			e.total += uint64(hits)
			if e.idle++; hits > 0 {
				e.last = now
				e.idle = 0
			}
			e.first = min(e.first, now)
			e.last = min(e.last, now) // the clock may have been set back
			if e.idle >= idleBound {
				set.freeLocked(j)
			}
		}
		set.mu.Unlock()
	}
}

// setRules replaces the limits of keys by those of a new set, so that the old set can be freed.
// Keys without a limit in the new set are removed.
func (s *sketch) setRules(set *descriptors.Set) {
	for i := range s.sets {
		at := &s.sets[i]
		at.mu.Lock()
		for j := range at.entries {
			e := &at.entries[j]
			if at.tags[j].Load() == 0 || e.limit == nil {
				continue
			}
			if e.limit = set.Counterpart(e.limit); e.limit == nil {
				at.freeLocked(j)
			}
		}
		at.mu.Unlock()
	}
}

type denied struct {
	id          identity.ID
	limit       *descriptors.Limit
	recent      uint64 // denials in this and the last interval
	total       uint64
	first, last uint32
	end         uint32 // end of the key's penalty, 0 for none
	text        string
	name        descriptors.NameSum // zero for none
	own         ownPolicy           // with an empty domain if the counter uses its rule's policy
}

// read calls f with each key. It returns the number of denied descriptors in this and the last
// interval.
func (s *sketch) read(f func(denied)) (all uint64) {
	now := s.now.Load()
	for i := range s.sets {
		set := &s.sets[i]
		set.mu.Lock()
		all += uint64(set.lost) + uint64(set.pastLost)
		for j := range set.entries {
			e := &set.entries[j]
			tag := set.tags[j].Load()
			if tag == 0 {
				continue
			}
			hits := uint64(set.certainHits(j))
			d := denied{
				id: identity.ID{Hi: e.high, Lo: tag}, limit: e.limit,
				recent: hits + uint64(set.past[j]), total: e.total + hits, first: min(e.first, now), last: min(e.last, now),
			}
			all += d.recent
			if hits > 0 {
				d.last = now
			}
			if end := set.ends[j].Load(); end > now {
				d.end = end
			}
			if s.hasText(d.id, j) {
				d.text = s.texts.Load()[i].all[j].String()
			}
			if s.names != nil {
				d.name = s.names[i][j]
			}
			if o := s.ownPolicies.Load(); o != nil && o[i][j].domain != "" {
				d.own = ownPolicy{o[i][j].policy.Clone(nil), o[i][j].domain}
			}
			f(d)
		}
		set.mu.Unlock()
	}
	return all - min(all, s.duplicates.Load()+s.pastDuplicates)
}
