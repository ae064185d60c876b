package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// DefaultStoreStartTimeout is the default of [Options].StoreStartTimeout.
const DefaultStoreStartTimeout = time.Second

// openStore returns the store. Its Run method must be called. The fallback counts in table.
func openStore(
	options store.Options, table *limiter.Table, metrics *telemetry.Metrics, logger *zap.Logger,
) (*store.Store, error) {
	options.Table = table
	options.Log = storeLog(options.Fallback, logger)
	options.Panicked = telemetry.NewPanics(metrics.Panics, logger).Report
	var shared *store.Store // set before metrics are collected
	kinds := make([]string, len(redis.Kinds))
	for i, k := range redis.Kinds {
		kinds[i] = string(k)
	}
	options.Observer = metrics.Store(store.Deciders, store.BlockEvents, kinds, func() bool { return shared.Reached() },
		func() map[string]bool { return shared.Shards() }, func() time.Duration { return shared.Offset() })
	var err error
	shared, err = store.New(options)
	return shared, err
}

// awaitStore waits until every primary has replied, so that a healthy store decides the first
// requests too. It returns after d.startTimeout at the latest, or when ctx ends. It logs a timeout,
// and later that the store was reached. It returns an error if the URL is for another kind of store.
func (d *Daemon) awaitStore(ctx context.Context, group *errgroup.Group, shared awaitedStore) error {
	within, cancel := context.WithTimeout(ctx, d.startTimeout)
	defer cancel()
	if shared.Await(within) || ctx.Err() != nil {
		return nil
	}
	if err := shared.WrongMode(); err != nil {
		return err
	}
	began := time.Now()
	// The store's log raises the condition with the reason.
	d.Logger.Warn("starting without the store", zap.Duration("within", d.startTimeout),
		zap.String("fallback", string(d.fallback)), telemetry.Mark(telemetry.StoreNotReached))
	group.Go(func() error {
		if shared.Await(ctx) {
			d.Logger.Info("store reached", zap.Duration("after", d.startTimeout+time.Since(began)))
		}
		return nil
	})
	return nil
}

// awaitedStore is a [store.Store], except in tests.
type awaitedStore interface {
	Await(ctx context.Context) bool
	WrongMode() error
}

// storeLog returns callbacks that log events of the store.
func storeLog(decider store.Fallback, logger *zap.Logger) store.Log {
	fallback := zap.String("fallback", string(decider))
	raise := func(code telemetry.Code) func(string, redis.Kind, error, string) {
		return func(shard string, kind redis.Kind, err error, remedy string) {
			fields := []zap.Field{
				zap.String("store", shard), zap.String("kind", string(kind)), zap.Error(err), fallback,
			}
			if remedy != "" {
				fields = append(fields, zap.String("remedy", remedy))
			}
			telemetry.Raise(logger, code, shard, fields...)
		}
	}
	return store.Log{
		Unavailable: raise(telemetry.StoreUnavailable),
		NotReached:  raise(telemetry.StoreNotReached),
		Recovered: func(shard string, after time.Duration, charged store.Synced) {
			fields := []zap.Field{zap.String("store", shard), zap.Duration("after", after)}
			if charged.Counters > 0 {
				fields = append(fields, zap.Uint64("charged_hits", charged.Hits),
					zap.Uint64("exceeded_hits", charged.Exceeded), zap.Int("counters", charged.Counters))
			}
			logger.Info("store recovered",
				append(fields, telemetry.Clear(shard, telemetry.StoreUnavailable, telemetry.StoreNotReached))...)
		},
		Replaced: func(shard string) {
			logger.Info("store primary replaced: others now have its slots", zap.String("store", shard),
				telemetry.Clear(shard, telemetry.StoreUnavailable, telemetry.StoreNotReached))
		},
		Foreign: func(shard, key string, err error) {
			logger.Error("another program overwrote the key of a counter; the fallback decides its requests",
				zap.String("store", shard), zap.String("key", key), zap.Error(err), fallback)
		},
	}
}
