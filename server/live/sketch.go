package live

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// The size of a sketch: sets*ways keys.
const (
	sets = 32
	ways = 8 // their tags are one cache line
)

// The times of a sketch.
const (
	// interval is how long denials are counted before they are the last interval's.
	interval = 5 * time.Second
	// forgetAfter is how long a key stays without a denial. It leaves with the first interval
	// that ends later. Intervals are counted, since the clock may be set.
	forgetAfter = time.Minute
	idleBound   = uint8(forgetAfter/interval) + 1
	// oldAge is the number of intervals after which denials were counted in all of the time that rates are of, whatever
	// the clock says.
	oldAge = 2
)

// A sketch finds the keys of one domain that are denied most. A key is a counter: a rule's limit
// and the values of a client.
//
// It is Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and
// top-k elements in data streams", 2005), in sets: a key's hash chooses eight entries, and a new key
// takes the least of them, and with it that one's count as a possible error. So a key with more
// than one of 256 denials is found with near certainty, and of a flood of keys that are denied
// once each none seems large. Counts begin anew with each interval, so that a flood of an
// hour ago does not hide the one of now.
//
// A key that is known costs a look at eight tags and one atomic addition. A new key takes its set's
// lock; if another has it, the denial is not counted, since nobody may wait here.
type sketch struct {
	now   *atomic.Uint32 // Unix seconds, kept by [Live.Tick]
	sets  [sets]set
	texts *[sets][ways]text // nil unless values are kept
	// names are what names the counters in a store, zero for those that it has under names with values. Nil without
	// a store.
	names *[sets][ways]descriptors.NameSum
	namer *descriptors.Namer
	// since is when the first denial of an uninterrupted series of intervals with denials was, in Unix seconds; 0 for none.
	since atomic.Uint32
	// age is the number of these intervals that have ended, at most oldAge, under [Live].mu.
	age uint8
	// again are the denials of this interval of descriptors that another limit has denied. Those of the last interval are
	// in pastAgain, under [Live].mu.
	again     atomic.Uint64
	pastAgain uint64
	// owns has what the counters of keys count by that do not count by their rule's policy. It is nil until there is one.
	owns atomic.Pointer[[sets][ways]ownTerms]
}

// ownTerms are what is kept of a key that counts by the numbers of a request or of a table's row. The memory of those is used
// again. It is read and written under the lock of the key's set.
type ownTerms struct {
	policy limiter.Policy // with a Reserve of its own
	domain string         // of the request; empty for a key that counts by its rule's policy
}

// set is eight keys. What a denial looks at stands together, in two cache lines.
type set struct {
	// tags are the IDs' low halves, 0 for a free entry. They are written under mu.
	tags [ways]atomic.Uint64
	// hits are the denials of this interval, with those inherited. past are those of the last one.
	hits [ways]atomic.Uint32
	past [ways]uint32
	// ends are when a penalty ends that a key is under, or later, in Unix seconds; 0 for none.
	ends [ways]atomic.Uint32
	mu   sync.Mutex

	entries [ways]entry
	// lost are the denials of this interval of keys that have no entry any more, and pastLost those of the last one.
	lost, pastLost uint32
}

// entry is what else is known of a key. It is read and written under the set's lock.
type entry struct {
	limit *descriptors.Limit // nil for a limit that requests carried
	high  uint64             // the other half of the ID
	total uint64             // denials before this interval
	// inherited is how many hits are those of the key that was there before.
	inherited uint32
	// first and last are when the key was denied, in Unix seconds.
	first, last uint32
	// idle is the number of intervals since the last denial, and age that since the first, at most oldAge.
	idle, age uint8
}

// own returns the denials of this interval that are certainly key i's.
func (s *set) own(i int) uint32 { return s.ownOf(i, s.hits[i].Load()) }

func (s *set) ownOf(i int, hits uint32) uint32 { return hits - min(hits, s.entries[i].inherited) }

// weight is what keys of a set are compared by.
func (s *set) weight(i int) uint32 { return s.hits[i].Load() + s.past[i] }

func newSketch(l *Live) *sketch {
	s := &sketch{now: &l.now, namer: l.namer}
	if l.mode == Clear {
		s.texts = new([sets][ways]text)
	}
	if l.namer != nil {
		s.names = new([sets][ways]descriptors.NameSum)
	}
	return s
}

func tagOf(id identity.ID) uint64 { return max(1, id.Lo) }

// add counts one denial of a key.
func (s *sketch) add(denial *Denial) {
	switch set, i, ok := s.find(denial.ID); {
	case ok:
		set.hits[i].Add(1)
	case set.mu.TryLock():
		s.addLocked(set, denial)
		set.mu.Unlock()
	default:
		return // not counted
	}
	if denial.Again {
		s.again.Add(1)
	}
}

// find returns where a key is.
func (s *sketch) find(id identity.ID) (at *set, i int, ok bool) {
	at = &s.sets[id.Hi%sets]
	for i := range at.tags {
		if at.tags[i].Load() == tagOf(id) {
			return at, i, true
		}
	}
	return at, 0, false
}

// addLocked gives a key that was not found an entry. Denials of the key that had it may count for the new one
// meanwhile; there are as few of them as processors.
func (s *sketch) addLocked(set *set, denial *Denial) {
	id, at, least, free := denial.ID, 0, ^uint32(0), false
	for i := range set.tags {
		switch set.tags[i].Load() {
		case tagOf(id): // another denial of the key was faster
			set.hits[i].Add(1)
			return
		case 0:
			at, least, free = i, 0, true
		default:
			// A key that was not denied lately weighs nothing, and stays while there is a free entry.
			if weight := set.weight(i); !free && weight < least {
				at, least = i, weight
			}
		}
	}
	set.loseLocked(at)
	now := s.now.Load()
	if s.since.Load() == 0 {
		s.since.CompareAndSwap(0, now)
	}
	set.entries[at] = entry{limit: denial.Limit, high: id.Hi, inherited: least, first: now, last: now}
	set.past[at] = 0
	set.hits[at].Store(least + 1)
	set.ends[at].Store(0)
	if s.texts != nil {
		s.texts[id.Hi%sets][at].write(denial.Entries)
	}
	if s.names != nil {
		s.names[id.Hi%sets][at], _ = s.namer.Sum(denial.Name) // zero without
	}
	s.keepOwn(id, at, denial)
	set.tags[at].Store(tagOf(id))
}

// freeLocked frees an entry, if it is not free.
func (s *set) freeLocked(at int) {
	if s.tags[at].Load() == 0 {
		return
	}
	s.loseLocked(at)
	s.tags[at].Store(0)
	s.hits[at].Store(0)
	s.past[at], s.entries[at].limit = 0, nil
}

// loseLocked adds the denials of an entry to those of keys that have no entry any more. A free entry has no denials.
func (s *set) loseLocked(at int) {
	s.lost += s.own(at)
	s.pastLost += s.past[at]
}

// keepOwn keeps what the counter of a new key counts by, at a place in its set, unless that is its rule's policy.
func (s *sketch) keepOwn(id identity.ID, at int, denial *Denial) {
	is := denial.Policy != nil && (denial.Limit == nil || denial.Policy != &denial.Limit.Policy)
	owns := s.owns.Load()
	if owns == nil {
		if !is {
			return
		}
		s.owns.CompareAndSwap(nil, new([sets][ways]ownTerms))
		owns = s.owns.Load()
	}
	o := &owns[id.Hi%sets][at]
	if o.domain = ""; is {
		o.domain, o.policy = denial.Domain, denial.Policy.Clone(o.policy.Reserve)
	}
}

// penalise notes for how long a key is denied, which was denied just before.
func (s *sketch) penalise(id identity.ID, left time.Duration) {
	if set, i, ok := s.find(id); ok {
		end := int64(s.now.Load()) + int64(left/time.Second)
		if left%time.Second > 0 {
			end++
		}
		set.ends[i].Store(uint32(min(end, math.MaxUint32))) //nolint:gosec // not negative
	}
}

// forget frees a key's entry.
func (s *sketch) forget(id identity.ID) {
	set := &s.sets[id.Hi%sets]
	set.mu.Lock()
	defer set.mu.Unlock()
	if _, i, ok := s.find(id); ok {
		set.freeLocked(i)
	}
}

// rotate ends the interval: its denials become the last one's.
func (s *sketch) rotate(now uint32) {
	s.pastAgain = s.again.Swap(0)
	denials := uint32(0)
	for i := range s.sets {
		set := &s.sets[i]
		set.mu.Lock()
		set.pastLost, set.lost = set.lost, 0
		denials |= set.pastLost
		for j := range set.entries {
			e := &set.entries[j]
			if set.tags[j].Load() == 0 {
				continue
			}
			own := set.ownOf(j, set.hits[j].Swap(0))
			denials |= own
			set.past[j] = own
			e.inherited = 0
			e.total += uint64(own)
			e.age = min(e.age+1, oldAge)
			if e.idle++; own > 0 {
				e.last, e.idle = now, 0
			}
			e.first, e.last = min(e.first, now), min(e.last, now) // the clock may have been set back
			if e.idle >= idleBound {
				set.freeLocked(j)
			}
		}
		set.mu.Unlock()
	}
	s.age = min(s.age+1, oldAge)
	if denials == 0 {
		s.since.Store(0)
		s.age = 0
	}
}

// follow has the limits of another set in place of those of an earlier one, so that no earlier set is kept. Keys whose
// limits are gone are forgotten.
func (s *sketch) follow(set *descriptors.Set) {
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

// denied is one key as it was when the sketch was read.
type denied struct {
	id          identity.ID
	limit       *descriptors.Limit
	recent      uint64 // denials in this interval and the last
	total       uint64
	first, last uint32
	age         uint8
	end         uint32 // of a penalty that it is under; 0 for none
	text        string
	name        descriptors.NameSum // zero if there is none
	own         ownTerms            // with an empty domain if there is none
}

// read calls f with each key, and returns the denied descriptors of this interval and the last.
func (s *sketch) read(f func(denied)) (all uint64) {
	now := s.now.Load()
	for i := range s.sets {
		set := &s.sets[i]
		set.mu.Lock()
		all += uint64(set.lost) + uint64(set.pastLost)
		for j := range set.entries {
			e, tag := &set.entries[j], set.tags[j].Load()
			if tag == 0 {
				continue
			}
			own := uint64(set.own(j))
			d := denied{
				id: identity.ID{Hi: e.high, Lo: tag}, limit: e.limit,
				recent: own + uint64(set.past[j]), total: e.total + own, first: min(e.first, now), last: min(e.last, now), age: e.age,
			}
			all += d.recent
			if own > 0 {
				d.last = now
			}
			if end := set.ends[j].Load(); end > now {
				d.end = end
			}
			if s.texts != nil {
				d.text = s.texts[i][j].String()
			}
			if s.names != nil {
				d.name = s.names[i][j]
			}
			if o := s.owns.Load(); o != nil && o[i][j].domain != "" {
				d.own = ownTerms{o[i][j].policy.Clone(nil), o[i][j].domain}
			}
			f(d)
		}
		set.mu.Unlock()
	}
	return all - min(all, s.again.Load()+s.pastAgain)
}
