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

// setting is the purpose and size of a store.
type setting struct {
	counters int
	purpose  purpose
}

type purpose int

const (
	admitting purpose = iota // the limit is never reached
	denying                  // one hit, then denials for weeks
	lasting                  // a hit counts for hours
)

// store contains the counters of one limiter. It returns a function, for one thread, that decides
// one hit on the counter of a key and reports whether it was admitted.
type store func() (decide func(key []byte) bool)

// contender is a limiter under measurement.
type contender struct {
	name        string
	neverDenies bool // it can only delay
	// hashesKeys is true if a new counter does not refer to its key.
	hashesKeys bool
	open       func(testing.TB, setting) store
}

// openFilled returns a store whose counters have had one hit each.
func (c *contender) openFilled(tb testing.TB, how setting) store {
	tb.Helper()
	s := c.open(tb, how)
	c.fill(s, how.counters)
	return s
}

// fill hits counters 0 to n-1 once each and returns the number of admitted hits.
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

// contenders returns sluice's limiters, then the others. Libraries without keys get one limiter per
// key in a sync.Map.
func contenders() []contender {
	return append(sluiceContenders(), []contender{
		{name: "golang.org/x/time/rate", open: openXRate},
		{name: "juju/ratelimit", open: openJuju},
		{name: "uber-go/ratelimit", open: openUber, neverDenies: true},
		{name: "sethvargo/go-limiter", open: openSethvargo},
		{name: "throttled/throttled", open: openThrottled},
		{name: "ulule/limiter", open: openUlule},
	}...)
}

// refillInterval is the time after which a denying or lasting counter regains a hit.
const refillInterval = 1000 * time.Hour

// unsafeString converts the key to a string without a copy. That saves the other libraries an
// allocation that most of their users need.
func unsafeString(key []byte) string { return unsafe.String(unsafe.SliceData(key), len(key)) }

// perKey returns a store of limiters in a sync.Map.
func perKey[L any](limiter func() L, allow func(L) bool) store {
	var limiters sync.Map
	return func() func([]byte) bool {
		return func(key []byte) bool {
			k := unsafeString(key)
			l, ok := limiters.Load(k)
			if !ok {
				l, _ = limiters.LoadOrStore(k, limiter())
			}
			return allow(l.(L))
		}
	}
}

func openXRate(_ testing.TB, s setting) store {
	every, burst := rate.Limit(1e9), math.MaxInt32
	if s.purpose != admitting {
		every, burst = rate.Every(refillInterval), 1
	}
	return perKey(func() *rate.Limiter { return rate.NewLimiter(every, burst) }, (*rate.Limiter).Allow)
}

func openJuju(_ testing.TB, s setting) store {
	every, burst := time.Nanosecond, int64(math.MaxInt32)
	if s.purpose != admitting {
		every, burst = refillInterval, 1
	}
	return perKey(
		func() *ratelimit.Bucket { return ratelimit.NewBucket(every, burst) },
		func(l *ratelimit.Bucket) bool { return l.TakeAvailable(1) == 1 },
	)
}

// openUber uses a limit for which no call has to wait.
func openUber(testing.TB, setting) store {
	return perKey(
		func() uber.Limiter { return uber.New(1e9) },
		func(l uber.Limiter) bool { l.Take(); return true },
	)
}

func openSethvargo(tb testing.TB, s setting) store {
	tb.Helper()
	// With more tokens than nanoseconds per interval none would be refilled.
	config := memorystore.Config{Tokens: 1e9, Interval: time.Hour, SweepInterval: refillInterval, SweepMinTTL: refillInterval}
	if s.purpose != admitting {
		config.Tokens, config.Interval = 1, refillInterval
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
			_, _, _, ok, err := m.Take(context.Background(), unsafeString(key))
			return ok && err == nil
		}
	}
}

func openThrottled(tb testing.TB, s setting) store {
	tb.Helper()
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1e9, time.Second), MaxBurst: 1e9}
	if s.purpose != admitting {
		quota = throttled.RateQuota{MaxRate: throttled.PerDuration(1, refillInterval)}
	}
	m, err := memstore.NewCtx(0) // unbounded, so that no counter is evicted
	if err != nil {
		tb.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(m, quota)
	if err != nil {
		tb.Fatal(err)
	}
	return func() func([]byte) bool {
		return func(key []byte) bool {
			denied, _, err := l.RateLimitCtx(context.Background(), unsafeString(key), 1)
			return !denied && err == nil
		}
	}
}

func openUlule(_ testing.TB, s setting) store {
	limit := ulule.Rate{Period: time.Hour, Limit: math.MaxInt64}
	if s.purpose != admitting {
		limit = ulule.Rate{Period: refillInterval, Limit: 1}
	}
	l := ulule.New(ululestore.NewStoreWithOptions(ulule.StoreOptions{Prefix: ulule.DefaultPrefix, CleanUpInterval: refillInterval}), limit)
	return func() func([]byte) bool {
		return func(key []byte) bool {
			got, err := l.Get(context.Background(), unsafeString(key))
			return !got.Reached && err == nil
		}
	}
}

// TestContendersLimit checks that each contender limits as its case requires.
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
