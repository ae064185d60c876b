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
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// What is kept of the keys that are denied.
const (
	Off    = "off"
	Hashed = "hashed"
	Clear  = "clear"
)

// The bounds on what is kept.
const (
	// MaxDomains is how many domains have a sketch of their own. Those beyond it share one.
	MaxDomains = 100
	// MaxKeys is how many denied keys a domain's state has.
	MaxKeys = 20
	// MaxUnmatched is how many places a domain has at which descriptors match no rule.
	MaxUnmatched = 16
)

// Live is what is known of the moment. Its methods may be called concurrently.
type Live struct {
	mode  string
	key   identity.Key
	namer *descriptors.Namer // nil unless a store has the counters
	now   atomic.Uint32      // Unix seconds of the last Tick

	mu     sync.Mutex
	begun  uint32             // Unix seconds at which the interval began
	lasted uint32             // number of seconds of the last interval
	places map[string]*Domain // by the domain's name
	rest   *Domain            // of domains beyond MaxDomains
}

// Domain takes what is worth telling of the requests for one domain.
type Domain struct {
	live      *Live
	sketch    atomic.Pointer[sketch] // nil until the first denial
	unmatched atomic.Pointer[unmatched]
}

// New returns a Live that has seen nothing. Mode is [Off], [Hashed] or [Clear]. Key keys the hashes that
// stand for keys; replicas whose hashes are to be compared have the same. Namer names the counters that a store has; nil
// means that they are in memory.
func New(mode string, key identity.Key, namer *descriptors.Namer) *Live {
	l := &Live{mode: mode, key: key, namer: namer, places: map[string]*Domain{}}
	l.rest = l.domain()
	return l
}

func (l *Live) domain() *Domain {
	d := &Domain{live: l}
	d.unmatched.Store(newUnmatched(&l.now))
	return d
}

// Mode is what is kept of keys: [Off], [Hashed] or [Clear].
func (l *Live) Mode() string { return l.mode }

// Serve tells of the rules that are in force from now on. It returns what takes the requests for their domains,
// in the order of [descriptors.Set.Domains]. Keys that are denied stay if the rules still have their limits.
// What no rule matched is forgotten.
func (l *Live) Serve(set *descriptors.Set) []*Domain {
	names := set.Domains()
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.places
	l.places = make(map[string]*Domain, min(len(names), MaxDomains))
	all := make([]*Domain, len(names))
	for i, name := range names {
		d := l.rest
		if len(l.places) < MaxDomains {
			if d = old[name]; d == nil {
				d = l.domain()
			}
			l.places[name] = d
		}
		all[i] = d
	}
	for d := range l.domainsLocked {
		d.unmatched.Store(newUnmatched(&l.now))
		if s := d.sketch.Load(); s != nil {
			s.follow(set)
		}
	}
	return all
}

// A Denial is a charge for which a request is denied.
type Denial struct {
	// ID is the counter of the charge.
	ID identity.ID
	// Limit is that of the rule, nil for a limit that the request carried.
	Limit *descriptors.Limit
	// Policy is what the counter counts by. If it is not that of Limit, it is copied.
	Policy *limiter.Policy
	// Domain is the name of the request's domain.
	Domain string
	// Entries are those of the request's descriptor. They are kept in the mode [Clear] only.
	Entries []descriptors.Entry
	// Name is the counter's name in a store. Its hash is kept, if it has one.
	Name []byte
	// Again says that another limit has denied the same descriptor, which counts once among those of the domain.
	Again bool
}

// Denied counts a denial. It keeps none of the memory that the denial refers to, but for Limit and Domain.
func (d *Domain) Denied(denial *Denial) {
	if d.live.mode == Off {
		return
	}
	s := d.sketch.Load()
	if s == nil {
		d.sketch.CompareAndSwap(nil, newSketch(d.live))
		s = d.sketch.Load()
	}
	s.add(denial)
}

// Lists reports whether the counter id is among the keys that are denied.
func (d *Domain) Lists(id identity.ID) bool {
	s := d.sketch.Load()
	if s == nil {
		return false
	}
	_, _, ok := s.find(id)
	return ok
}

// Penalised says for how long a penalty denies the counter id, of which Denied has been called.
func (d *Domain) Penalised(id identity.ID, left time.Duration) {
	if s := d.sketch.Load(); s != nil {
		s.penalise(id, left)
	}
}

// Tick tells the time. It is called each second, and before a state is made. A time a little before the last one is that of
// a caller that was overtaken. A greater difference means that the clock was set, which ends the interval, too.
func (l *Live) Tick(now time.Time) {
	seconds := uint32(now.Unix()) //nolint:gosec // until 2106
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.now.Swap(seconds)
	if before == seconds {
		return
	}
	passed := time.Duration(int32(seconds-l.begun)) * time.Second //nolint:gosec // negative if l.begun is later
	ends := passed >= interval || passed <= -interval
	if ends {
		if passed < 0 || passed > 2*interval { // the clock was set, or nothing ran
			passed = time.Duration(int32(before-l.begun)) * time.Second //nolint:gosec // as above
		}
		l.begun, l.lasted = seconds, uint32(max(time.Second, passed)/time.Second) //nolint:gosec // positive
	}
	for d := range l.domainsLocked {
		u, s := d.unmatched.Load(), d.sketch.Load()
		u.budget.Store(unmatchedBudget)
		if !ends {
			continue
		}
		u.rotate(seconds)
		if s != nil {
			s.rotate(seconds)
		}
	}
}

// domainsLocked yields all domains, and last what those beyond the bound share.
func (l *Live) domainsLocked(yield func(*Domain) bool) {
	for _, d := range l.places {
		if !yield(d) {
			return
		}
	}
	yield(l.rest)
}

// Hash returns what stands for a counter: 16 hexadecimal digits that tell nothing of the ID.
func (l *Live) Hash(id identity.ID) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], id.Hi)
	binary.BigEndian.PutUint64(b[8:], tagOf(id))
	return l.mac("denied key", b[:])
}

// HashKey returns what is equal where hashes can be compared.
func (l *Live) HashKey() string { return l.mac("hash key", nil) }

func (l *Live) mac(label string, b []byte) string {
	h := hmac.New(sha256.New, l.key[:])
	h.Write([]byte(label))
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Denials is what is known of the denials of a domain.
type Denials struct {
	Keys []Key
	// PerSecond are all denied descriptors.
	PerSecond float64
}

// Denials returns what is denied, by the name of the domain.
func (l *Live) Denials() map[string]*Denials {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]*Denials{}
	for name, d := range l.places {
		l.readLocked(all, name, d)
	}
	l.readLocked(all, "", l.rest)
	for _, d := range all {
		slices.SortFunc(d.Keys, CompareKeys)
		d.Keys = d.Keys[:min(len(d.Keys), MaxKeys)]
	}
	return all
}

func (l *Live) readLocked(all map[string]*Denials, name string, d *Domain) {
	s := d.sketch.Load()
	if s == nil {
		return
	}
	now := l.now.Load()
	var found []denied
	sum := s.read(func(d denied) { found = append(found, d) })
	over := l.lasted
	if now > l.begun {
		over += now - l.begun
	}
	lasted := func(first uint32, age uint8) uint32 {
		if age >= oldAge || first > now {
			return over
		}
		return max(1, min(over, now-first))
	}
	longest := lasted(cmp.Or(s.since.Load(), now), s.age)
	for _, d := range found {
		longest = max(longest, lasted(d.first, d.age))
	}
	for _, d := range found {
		in := cmp.Or(d.own.domain, name)
		k := Key{Hash: l.Hash(d.id), Descriptor: d.text, Denied: d.total, Since: seconds(d.first), Last: seconds(d.last)}
		if d.limit != nil {
			in = d.limit.Rule.Domain()
			k.Rule, k.Limit, k.Name = d.limit.Rule.Path(), d.limit.String(), d.limit.Name
		}
		k.PerSecond = float64(d.recent) / float64(lasted(d.first, d.age))
		if d.end > 0 {
			k.PenaltyUntil = new(seconds(d.end))
		}
		if sum > 0 {
			k.Share = float64(d.recent) / float64(sum)
		}
		if all[in] == nil {
			all[in] = &Denials{PerSecond: float64(sum) / float64(longest)}
		}
		all[in].Keys = append(all[in].Keys, k)
	}
}

func seconds(s uint32) time.Time { return time.Unix(int64(s), 0).UTC() }
