package limiters

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/juju/ratelimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// A setting says what a store is opened for.
type setting struct {
	counters int
	purpose  purpose
}

type purpose int

const (
	admitting purpose = iota // there is always room
	denying                  // one hit, then no room for weeks
	lasting                  // a hit is remembered for hours
)

// A store holds the counters of one limiter. It returns a function for one thread that
// decides one hit on the counter of a key and reports whether it was admitted.
type store func() (decide func(key []byte) bool)

// A contender is one way to limit.
type contender struct {
	name        string
	neverDenies bool // it can only wait
	// hashesKeys says that a new counter does not refer to the key that made it.
	hashesKeys bool
	open       func(testing.TB, setting) store
}

// filled returns a store whose counters have had one hit each.
func (c *contender) filled(tb testing.TB, how setting) store {
	tb.Helper()
	s := c.open(tb, how)
	c.fill(s, how.counters)
	return s
}

// fill hits counters 0 to n-1 once each and returns how many hits were admitted.
func (c *contender) fill(s store, n int) (admitted int) {
	decide, key := s(), []byte(keyText)
	for i := range n {
		if !c.hashesKeys {
			key = []byte(keyText)
		}
		setKey(key, uint32(i))
		if decide(key) {
			admitted++
		}
	}
	return admitted
}

// contenders returns sluice's limiters and then the others. Those that have no keys get
// one limiter per key in a sync.Map.
func contenders() []contender {
	return append(sluices(), []contender{
		{name: "golang.org/x/time/rate", open: openXRate},
		{name: "juju/ratelimit", open: openJuju},
		{name: "uber-go/ratelimit", open: openUber, neverDenies: true},
		{name: "sethvargo/go-limiter", open: openSethvargo},
		{name: "throttled/throttled", open: openThrottled},
		{name: "ulule/limiter", open: openUlule},
	}...)
}

// rarely is how often a denying or lasting counter gets a hit back.
const rarely = 1000 * time.Hour

// text makes a string of the key without a copy. That saves the peers an allocation that
// most of their users pay.
func text(key []byte) string { return unsafe.String(unsafe.SliceData(key), len(key)) }

// perKey returns a store of limiters in a sync.Map.
func perKey[L any](limiter func() L, take func(L) bool) store {
	var limiters sync.Map
	return func() func([]byte) bool {
		return func(key []byte) bool {
			k := text(key)
			l, ok := limiters.Load(k)
			if !ok {
				l, _ = limiters.LoadOrStore(k, limiter())
			}
			return take(l.(L))
		}
	}
}

func openXRate(_ testing.TB, s setting) store {
	every, burst := rate.Limit(1e9), math.MaxInt32
	if s.purpose != admitting {
		every, burst = rate.Every(rarely), 1
	}
	return perKey(func() *rate.Limiter { return rate.NewLimiter(every, burst) }, (*rate.Limiter).Allow)
}

func openJuju(_ testing.TB, s setting) store {
	every, burst := time.Nanosecond, int64(math.MaxInt32)
	if s.purpose != admitting {
		every, burst = rarely, 1
	}
	return perKey(
		func() *ratelimit.Bucket { return ratelimit.NewBucket(every, burst) },
		func(l *ratelimit.Bucket) bool { return l.TakeAvailable(1) == 1 },
	)
}

// openUber has a limit that no call waits for.
func openUber(testing.TB, setting) store {
	return perKey(
		func() uber.Limiter { return uber.New(1e9) },
		func(l uber.Limiter) bool { l.Take(); return true },
	)
}

func openSethvargo(tb testing.TB, s setting) store {
	tb.Helper()
	// More tokens per interval than it has nanoseconds would never come back.
	config := memorystore.Config{Tokens: 1e9, Interval: time.Hour, SweepInterval: rarely, SweepMinTTL: rarely}
	if s.purpose != admitting {
		config.Tokens, config.Interval = 1, rarely
	}
	m, err := memorystore.New(&config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return func() func([]byte) bool {
		return func(key []byte) bool {
			_, _, _, ok, err := m.Take(context.Background(), text(key))
			return ok && err == nil
		}
	}
}

func openThrottled(tb testing.TB, s setting) store {
	tb.Helper()
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1e9, time.Second), MaxBurst: 1e9}
	if s.purpose != admitting {
		quota = throttled.RateQuota{MaxRate: throttled.PerDuration(1, rarely)}
	}
	m, err := memstore.NewCtx(0) // without a bound, so that none is forgotten
	if err != nil {
		tb.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(m, quota)
	if err != nil {
		tb.Fatal(err)
	}
	return func() func([]byte) bool {
		return func(key []byte) bool {
			denied, _, err := l.RateLimitCtx(context.Background(), text(key), 1)
			return !denied && err == nil
		}
	}
}

func openUlule(_ testing.TB, s setting) store {
	limit := ulule.Rate{Period: time.Hour, Limit: math.MaxInt64}
	if s.purpose != admitting {
		limit = ulule.Rate{Period: rarely, Limit: 1}
	}
	l := ulule.New(ululestore.NewStoreWithOptions(ulule.StoreOptions{Prefix: ulule.DefaultPrefix, CleanUpInterval: rarely}), limit)
	return func() func([]byte) bool {
		return func(key []byte) bool {
			got, err := l.Get(context.Background(), text(key))
			return !got.Reached && err == nil
		}
	}
}

// TestContendersLimit holds that what is measured is what the case is about.
func TestContendersLimit(t *testing.T) {
	for _, c := range contenders() {
		t.Run(c.name, func(t *testing.T) {
			for how, want := range map[purpose]int{admitting: 100, denying: 0, lasting: -1} {
				if c.neverDenies && how != admitting {
					continue
				}
				s := c.open(t, setting{100, how})
				if got := c.fill(s, 100); got != 100 {
					t.Errorf("purpose %d: %d of 100 first hits admitted, want all", how, got)
				}
				if got := c.fill(s, 100); want >= 0 && got != want {
					t.Errorf("purpose %d: %d of 100 second hits admitted, want %d", how, got, want)
				}
			}
		})
	}
}
