package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
	"unsafe"

	"github.com/juju/ratelimit"
	sethvargo "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// rarely is how often a denying or lasting counter gets a hit back.
const rarely = 1000 * time.Hour

// xrate is the peer with most users.
const xrate = "golang.org/x/time/rate"

// sethvargoName is the fastest keyed peer.
const sethvargoName = "sethvargo/go-limiter"

// peers are the limiters that sluice is compared with. Those that have no keys
// get one limiter per key in a sync.Map.
var peers = []*contender{
	{name: xrate, keys: "sync.Map", keepsKeys: true, open: openXRate},
	{name: "juju/ratelimit", keys: "sync.Map", keepsKeys: true, open: openJuju},
	{name: "uber-go/ratelimit", keys: "sync.Map", keepsKeys: true, neverDenies: true, open: openUber},
	{name: sethvargoName, keys: "memorystore", keepsKeys: true, open: openSethvargo},
	{name: "throttled/throttled v2", keys: "memstore", keepsKeys: true, open: openThrottled},
	{name: "ulule/limiter v3", keys: "memory store", keepsKeys: true, open: openUlule},
}

// text makes a string of the key without a copy, which spares the peers an
// allocation that most of their users pay.
func text(key []byte) string {
	return unsafe.String(unsafe.SliceData(key), len(key)) //nolint:gosec // who keeps a key gets one of its own
}

// perKey returns a store of limiters in a sync.Map.
func perKey[L any](limiter func() L, take func(L) bool) *store {
	var limiters sync.Map
	return &store{worker: func() worker {
		return func(key []byte) bool {
			k := text(key)
			l, ok := limiters.Load(k)
			if !ok {
				l, _ = limiters.LoadOrStore(k, limiter())
			}
			return take(l.(L)) //nolint:forcetypeassert,errcheck // nothing else is stored
		}
	}}
}

func openXRate(s setting) (*store, error) {
	every, burst := rate.Limit(1e9), math.MaxInt32
	if s.purpose != admitting {
		every, burst = rate.Every(rarely), 1
	}
	return perKey(
		func() *rate.Limiter { return rate.NewLimiter(every, burst) },
		func(l *rate.Limiter) bool { return l.Allow() },
	), nil
}

func openJuju(s setting) (*store, error) {
	every, burst := time.Nanosecond, int64(math.MaxInt32)
	if s.purpose != admitting {
		every, burst = rarely, 1
	}
	return perKey(
		func() *ratelimit.Bucket { return ratelimit.NewBucket(every, burst) },
		func(l *ratelimit.Bucket) bool { return l.TakeAvailable(1) == 1 },
	), nil
}

// openUber has a limit that no call waits for.
func openUber(setting) (*store, error) {
	return perKey(
		func() uber.Limiter { return uber.New(1e9) },
		func(l uber.Limiter) bool { l.Take(); return true },
	), nil
}

func openSethvargo(s setting) (*store, error) {
	// More tokens per interval than it has nanoseconds would never come back.
	config := memorystore.Config{Tokens: 1e9, Interval: time.Hour, SweepInterval: rarely, SweepMinTTL: rarely}
	if s.purpose != admitting {
		config.Tokens, config.Interval = 1, rarely
	}
	m, err := memorystore.New(&config)
	if err != nil {
		return nil, err
	}
	return &store{
		worker: func() worker {
			ctx := context.Background()
			return func(key []byte) bool {
				_, _, _, ok, err := m.Take(ctx, text(key))
				return ok && err == nil
			}
		},
		close: func() error { return closeSethvargo(m) },
	}, nil
}

func closeSethvargo(m sethvargo.Store) error { return m.Close(context.Background()) }

func openThrottled(s setting) (*store, error) {
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(1e9, time.Second), MaxBurst: 1e9}
	if s.purpose != admitting {
		quota = throttled.RateQuota{MaxRate: throttled.PerDuration(1, rarely)}
	}
	m, err := memstore.NewCtx(0) // without a bound, so that none is forgotten
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(m, quota)
	if err != nil {
		return nil, fmt.Errorf("make throttled's limiter: %w", err)
	}
	return &store{worker: func() worker {
		ctx := context.Background()
		return func(key []byte) bool {
			denied, _, err := l.RateLimitCtx(ctx, text(key), 1)
			return !denied && err == nil
		}
	}}, nil
}

func openUlule(s setting) (*store, error) {
	limit := ulule.Rate{Period: time.Hour, Limit: math.MaxInt64}
	if s.purpose != admitting {
		limit = ulule.Rate{Period: rarely, Limit: 1}
	}
	m := memory.NewStoreWithOptions(ulule.StoreOptions{Prefix: ulule.DefaultPrefix, CleanUpInterval: rarely})
	l := ulule.New(m, limit)
	return &store{worker: func() worker {
		ctx := context.Background()
		return func(key []byte) bool {
			got, err := l.Get(ctx, text(key))
			return !got.Reached && err == nil
		}
	}}, nil
}
