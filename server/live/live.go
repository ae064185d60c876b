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
)

// Live is what is known of the moment. Its methods may be called concurrently.
type Live struct {
	mode string
	key  identity.Key
	now  atomic.Uint32 // Unix seconds of the last Tick

	mu      sync.Mutex
	rotated uint32             // when the interval began
	places  map[string]*Domain // by the domain's name
	rest    *Domain            // of domains beyond MaxDomains
}

// Domain takes the denials of one domain. A nil Domain takes none.
type Domain struct {
	live   *Live
	sketch atomic.Pointer[sketch] // nil until the first denial
}

// New returns a Live that has seen nothing. Mode is [Off], [Hashed] or [Clear]. Key keys the hashes that
// stand for keys; replicas whose hashes are to be compared have the same.
func New(mode string, key identity.Key) *Live {
	l := &Live{mode: mode, key: key, places: map[string]*Domain{}}
	l.rest = &Domain{live: l}
	return l
}

// Mode is what is kept of keys: [Off], [Hashed] or [Clear].
func (l *Live) Mode() string { return l.mode }

// Domains returns what takes the denials of the domains named, in their order. Domains that had one before
// keep it; what is known of others is forgotten.
func (l *Live) Domains(names []string) []*Domain {
	if l.mode == Off {
		return make([]*Domain, len(names))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.places
	l.places = make(map[string]*Domain, min(len(names), MaxDomains))
	all := make([]*Domain, len(names))
	for i, name := range names {
		d := l.rest
		if len(l.places) < MaxDomains {
			if d = old[name]; d == nil {
				d = &Domain{live: l}
			}
			l.places[name] = d
		}
		all[i] = d
	}
	return all
}

// Denied counts one denial of the counter id. The limit is nil for one that the request carried. Entries are those
// of the request's descriptor; nothing of them is kept unless the mode is [Clear].
func (d *Domain) Denied(id identity.ID, limit *descriptors.Limit, entries []descriptors.Entry) {
	if d == nil {
		return
	}
	s := d.sketch.Load()
	if s == nil {
		d.sketch.CompareAndSwap(nil, newSketch(&d.live.now, d.live.mode == Clear))
		s = d.sketch.Load()
	}
	s.add(id, limit, entries)
}

// Tick tells the time. It is called each second, and before a state is made.
func (l *Live) Tick(now time.Time) {
	seconds := uint32(now.Unix()) //nolint:gosec // until 2106
	l.now.Store(seconds)
	l.mu.Lock()
	defer l.mu.Unlock()
	if seconds-l.rotated < uint32(interval/time.Second) {
		return
	}
	l.rotated = seconds
	for s := range l.sketchesLocked {
		s.rotate(seconds)
	}
}

// sketchesLocked yields all sketches.
func (l *Live) sketchesLocked(yield func(*sketch) bool) {
	for _, d := range l.places {
		if s := d.sketch.Load(); s != nil && !yield(s) {
			return
		}
	}
	if s := l.rest.sketch.Load(); s != nil {
		yield(s)
	}
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

// Keys returns the keys that are denied most, by the name of their domain. Those of limits that requests carried
// are under the name of the domain, too, unless it is one that shares a sketch.
func (l *Live) Keys() map[string][]Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string][]Key{}
	for name, d := range l.places {
		l.keysLocked(all, name, d)
	}
	l.keysLocked(all, "", l.rest)
	for name, keys := range all {
		slices.SortFunc(keys, func(a, b Key) int {
			return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Hash, b.Hash))
		})
		all[name] = keys[:min(len(keys), MaxKeys)]
	}
	return all
}

func (l *Live) keysLocked(all map[string][]Key, name string, d *Domain) {
	s := d.sketch.Load()
	if s == nil {
		return
	}
	now := l.now.Load()
	var found []denied
	sum := s.read(func(d denied) { found = append(found, d) })
	for _, d := range found {
		in := name
		k := Key{Hash: l.Hash(d.id), Descriptor: d.text, Denied: d.total, Since: seconds(d.first), Last: seconds(d.last)}
		if d.limit != nil {
			in = d.limit.Rule.Domain()
			k.Rule, k.Limit, k.Name = d.limit.Rule.Path(), d.limit.String(), d.limit.Name
		}
		over := min(now-l.rotated+uint32(interval/time.Second), now-d.first)
		k.PerSecond = float64(d.recent) / float64(max(1, over))
		if sum > 0 {
			k.Share = float64(d.recent) / float64(sum)
		}
		all[in] = append(all[in], k)
	}
}

func seconds(s uint32) time.Time { return time.Unix(int64(s), 0).UTC() }
