package store

import (
	"math/rand/v2"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	steady "github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// Options configures a [Store]. The tags are those of the flags of sluice serve.
type Options struct {
	// Server is the address of the store.
	Server redis.Server `kong:"-"`
	// PerSecond is the address of the store for limits of one second. Nil means Server.
	PerSecond *redis.Server `kong:"-"`
	// Prefix is prepended to the names of the store's own counters.
	Prefix string `name:"store-prefix" placeholder:"TEXT" help:"Prefix of the names of counters in the store. Default: none."`
	// Jitter is the maximum extra TTL of keys of fixed windows. 0 means a minute, a negative value
	// none.
	Jitter time.Duration `name:"EXPIRATION_JITTER_MAX_SECONDS" hidden:"" range:"0s..24h" default:"1m" placeholder:"TIME" help:"Maximum random extra TTL of fixed-window keys, on top of one second, so that they do not expire together. At most the window itself."`
	// Timeout is the maximum time that a request waits for the store, 1ms to a minute; a request
	// with a deadline waits less. If a server sends nothing for this long it becomes unavailable.
	Timeout time.Duration `name:"store-timeout" range:"1ms..1m" default:"1s" placeholder:"TIME" help:"Maximum time to wait for the store; calls with a nearer deadline wait less. If the store sends nothing for this long it is unavailable, and --store-fallback decides all requests."`
	// DialTimeout bounds connecting, handshakes included, and a query to Sentinels or to a cluster
	// for its primaries. 0 means one second. Probes wait for the longer of it and Timeout.
	// PerSecondDialTimeout is the same for PerSecond.
	DialTimeout          time.Duration `name:"REDIS_TIMEOUT" hidden:"" range:"10ms..1m" default:"1s" placeholder:"TIME" help:"Maximum time to connect to the store, and to ask Sentinel or a cluster for the primaries, for which requests do not wait. Also sets --store-timeout."`
	PerSecondDialTimeout time.Duration `name:"REDIS_PERSECOND_TIMEOUT" hidden:"" range:"10ms..1m" default:"1s" placeholder:"TIME" help:"Same as REDIS_TIMEOUT, for --store-per-second."`
	// Fallback decides while the store is unavailable.
	Fallback Fallback `name:"store-fallback" enum:"local,error,allow,deny" default:"local" placeholder:"local|error|allow|deny" help:"How to decide while the store is unavailable: local (in memory, from the last known state of the store), error (answer with an error), allow or deny."`
	// Blocks is [BlocksOff], also if empty, or [BlocksAuto].
	Blocks string `name:"store-blocks" enum:"off,auto" default:"off" placeholder:"off|auto" help:"Whether a replica charges the hits of a hot counter in advance, in blocks, and decides without the store until they are used up: off, or auto. Limits stay exact. Needs one primary: no cluster and no --store-per-second."`
	// Table mirrors the counters of the store. [Local] and certain denials are decided in it.
	Table *limiter.Table `kong:"-"`
	// Observer counts events for metrics. Optional.
	Observer Observer `kong:"-"`
	// Log is called when a shard becomes unavailable and when it recovers. Optional.
	Log Log `kong:"-"`
	// Steady is the clock of callers' times. With it, a step of this machine's clock does not change
	// the estimate of the store's. If Steady is nil, the times are those of Clock, which is
	// [time.Now] if it is nil, too.
	Steady *steady.Clock       `kong:"-"`
	Clock  func() time.Time    `kong:"-"`
	at     func() limiter.Time // returns the store's time in tests; nil otherwise
	// Spread returns the time to wait before an attempt to connect, given its mean, so that replicas
	// do not connect at the same time. Nil is random, between three and five quarters of the mean.
	Spread func(mean time.Duration) time.Duration `kong:"-"`
	// Panicked is called with the value of a panic, a bug, while its stack is still present.
	// Optional.
	Panicked func(thrown any) `kong:"-"`
}

// An Observer counts events for metrics. Its methods are called concurrently and must not block.
type Observer interface {
	// Batch is called for a batch that the store has answered.
	Batch(took time.Duration, charges int)
	// Failed is called for a batch or a probe that failed, with one of [redis.Kinds].
	Failed(kind string)
	// Decided is called with one of [Deciders] and the number of charges that it decided.
	Decided(by string, charges int)
	// Synced is called when the store was charged with hits that the fallback had admitted.
	Synced(hits uint64)
	// Dropped is called for hits that the fallback admitted and the store will not be charged with:
	// they were on too many counters, or on one that another program has written.
	Dropped(hits uint64)
	// Blocks is called with one of [BlockEvents] and a number of hits.
	Blocks(event string, hits uint64)
	// Diverged is called when the number of admitted charges differs from that in the store's
	// reply, which is a bug.
	Diverged()
}

// Log has functions that log events for operators. They are optional.
type Log struct {
	// Unavailable is called when a shard becomes unavailable, and again when the reason changes.
	// remedy is empty if the operator can only wait.
	Unavailable func(shard string, kind redis.Kind, err error, remedy string)
	// NotReached is called instead of Unavailable until a primary has answered for the first time.
	// Nil means Unavailable.
	NotReached func(shard string, kind redis.Kind, err error, remedy string)
	// Recovered is called when a shard is available again and was charged with the hits that the
	// fallback had admitted.
	Recovered func(shard string, after time.Duration, charged Synced)
	// Replaced is called instead of Recovered if other primaries have the slots of an unavailable
	// shard.
	Replaced func(shard string)
	// Foreign is called, at most once in ten seconds, when a charge cannot be decided because
	// another program wrote the key of its counter.
	Foreign func(shard, key string, err error)
}

// Synced summarises the unsynced hits with which a recovering store was charged.
type Synced struct {
	Counters int
	// Hits is the number of all hits. Exceeded is the number of hits admitted beyond their limits.
	Hits, Exceeded uint64
}

func (l *Log) recovered(shard string, after time.Duration, charged Synced) {
	if l.Recovered != nil {
		l.Recovered(shard, after, charged)
	}
}

func (l *Log) replaced(shard string) {
	if l.Replaced != nil {
		l.Replaced(shard)
	}
}

// These are the labels of the components that decide charges.
const (
	byStore    = "store"
	byMemory   = "memory" // certain denials
	byFallback = "fallback"
	byBlock    = "block"     // hits charged in advance
	byTooLarge = "too_large" // the mirror, because the request would occupy the store for too long
)

// Deciders are the labels of all components that decide charges.
var Deciders = []string{byStore, byMemory, byBlock, byFallback, byTooLarge}

// Values of [Options.Blocks].
const (
	BlocksOff  = "off"
	BlocksAuto = "auto"
)

// These are the labels of events of blocks.
const (
	blockAcquired = "acquired"
	blockReturned = "returned"
	blockLost     = "lost" // unused when the block ended or the connection failed
)

// BlockEvents are the labels of all events of blocks.
var BlockEvents = []string{blockAcquired, blockReturned, blockLost}

type noObserver struct{}

func (noObserver) Batch(time.Duration, int) {}
func (noObserver) Failed(string)            {}
func (noObserver) Decided(string, int)      {}
func (noObserver) Synced(uint64)            {}
func (noObserver) Dropped(uint64)           {}
func (noObserver) Blocks(string, uint64)    {}
func (noObserver) Diverged()                {}

func (o *Options) observe() Observer {
	if o.Observer == nil {
		return noObserver{}
	}
	return o.Observer
}

func randomSpread(mean time.Duration) time.Duration {
	return mean - mean/4 + rand.N(mean/2+1) //nolint:gosec // no secret
}

// storeTime returns the time argument of scripts, 0 for the server's clock.
func (o *Options) storeTime() limiter.Time {
	if o.at == nil {
		return 0
	}
	return o.at()
}

// now returns the time of callers.
func (o *Options) now() limiter.Time { return o.Steady.At(o.elapsed()) }

// elapsed returns the time that has elapsed on the steady clock.
func (o *Options) elapsed() time.Duration { return o.Steady.ReadElapsed() }

// guard reports whether do returns. If do panics, which is a bug, it calls Panicked and the
// goroutine continues.
func (o *Options) guard(do func()) (returned bool) {
	defer func() {
		if thrown := recover(); thrown != nil && o.Panicked != nil {
			o.Panicked(thrown)
		}
	}()
	do()
	return true
}

// notify notifies w.
func (o *Options) notify(w limiter.Waiter, err error) { o.guard(func() { w.Decided(err) }) }
