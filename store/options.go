package store

import (
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// Options configures a [Store]. The tags are those of the flags of sluice serve.
type Options struct {
	// Server is where the store is.
	Server redis.Server `kong:"-"`
	// PerSecond is where limits of one second are. Nil means with the others.
	PerSecond *redis.Server `kong:"-"`
	// Prefix comes before the names of counters of the store's own.
	Prefix string `name:"store-prefix" placeholder:"TEXT" help:"Prefix of the names of counters in the store. Default: none."`
	// Jitter is the most that keys of fixed windows outlive these, beyond a second. 0 means a minute,
	// and less none.
	Jitter time.Duration `name:"store-jitter" range:"0s..24h" default:"1m" placeholder:"TIME" help:"Maximum random extra TTL of fixed-window keys, on top of one second, so that they do not expire together. At most the window itself."`
	// Timeout is how long a caller waits for the store at most, 1ms to a minute; one with a deadline waits as
	// long as that leaves room. A store that says nothing for as long is away.
	Timeout time.Duration `name:"store-timeout" range:"1ms..1m" default:"1s" placeholder:"TIME" help:"Maximum time to wait for the store; calls with a nearer deadline wait less. If the store sends nothing for this long it is unavailable, and --store-fallback decides all requests."`
	// DialTimeout is how long a connection may take, handshakes and all, and PerSecondDialTimeout one
	// to PerSecond. 0 means a second. Questions to Sentinels, and to a cluster for its primaries, wait as long. Probes wait for the
	// longer of it and Timeout.
	DialTimeout          time.Duration `name:"store-dial-timeout" range:"10ms..1m" default:"1s" placeholder:"TIME" help:"Maximum time to connect to the store, and to ask Sentinel or a cluster for the primaries. Requests do not wait for it."`
	PerSecondDialTimeout time.Duration `name:"store-per-second-dial-timeout" range:"10ms..1m" default:"1s" placeholder:"TIME" help:"Same as --store-dial-timeout, for --store-per-second."`
	// Fallback decides while the store is away.
	Fallback Fallback `name:"store-fallback" enum:"local,error,allow,deny" default:"local" placeholder:"local|error|allow|deny" help:"How to decide while the store is unavailable: local (in memory, from the last known state of the store), error (answer with an error), allow or deny."`
	// Table is a mirror of what the store last said of each counter. [Local] decides in it, and so are
	// certain refusals.
	Table *limiter.Table `kong:"-"`
	// Observer is told of what happens. Optional.
	Observer Observer `kong:"-"`
	// Log is told when a shard goes away and comes back. Optional.
	Log Log `kong:"-"`
	// Clock reads the clock that callers' times are of. Nil means this machine's.
	Clock func() time.Time    `kong:"-"`
	at    func() limiter.Time // tells the store's time; nil for its own clock's
	// Panicked is called with what was thrown in place of a decision, a bug, while the stack still
	// has its place. Optional.
	Panicked func(thrown any) `kong:"-"`
}

// An Observer counts for metrics. Its methods are called concurrently and must not block.
type Observer interface {
	// Batch tells of a batch that the store has answered.
	Batch(took time.Duration, charges int)
	// Failed tells of a batch or a probe that failed, and as which of [redis.Kinds].
	Failed(kind string)
	// Decided tells by what a number of charges were decided.
	Decided(by string, charges int)
	// Repaid tells that the store was charged with hits that the fallback had admitted.
	Repaid(hits uint64)
	// Forgot tells of hits that the fallback admitted and the store will not be charged with: they were on
	// too many counters, or on one that another program has written.
	Forgot(hits uint64)
	// Diverged tells that the store admitted another number than its reply says: a bug.
	Diverged()
}

// Log says what an operator should know. Its functions are optional.
type Log struct {
	// Away is called when a shard goes away, and while it is away, when there is another reason.
	// Remedy is empty where only waiting helps.
	Away func(shard string, kind redis.Kind, err error, remedy string)
	// Back is called when it is back and was charged with what the fallback had admitted.
	Back func(shard string, after time.Duration, charged Repaid)
	// Replaced is called in place of Back if other primaries have the slots of a shard that is away.
	Replaced func(shard string)
	// Foreign is called, once in ten seconds at most, when a charge cannot be decided because another program
	// wrote the key of its counter.
	Foreign func(shard, key string, err error)
}

// Repaid says what a store was charged with on its return.
type Repaid struct {
	Counters int
	// Hits are all, and Exceeded those of them that were admitted beyond their limits.
	Hits, Exceeded uint64
}

func (l *Log) away(shard string, why *redis.Error) {
	if l.Away != nil {
		l.Away(shard, why.Kind, why.Err, why.Kind.Remedy())
	}
}

func (l *Log) back(shard string, after time.Duration, charged Repaid) {
	if l.Back != nil {
		l.Back(shard, after, charged)
	}
}

func (l *Log) replaced(shard string) {
	if l.Replaced != nil {
		l.Replaced(shard)
	}
}

// By what charges were decided.
const (
	byStore    = "store"
	byMemory   = "memory" // certain refusals
	byFallback = "fallback"
	byTooLarge = "too_large" // in memory, of requests that would keep the store for too long
)

// Deciders are all of these, for metrics.
var Deciders = []string{byStore, byMemory, byFallback, byTooLarge}

type silent struct{}

func (silent) Batch(time.Duration, int) {}
func (silent) Failed(string)            {}
func (silent) Decided(string, int)      {}
func (silent) Repaid(uint64)            {}
func (silent) Forgot(uint64)            {}
func (silent) Diverged()                {}

func (o *Options) observe() Observer {
	if o.Observer == nil {
		return silent{}
	}
	return o.Observer
}

// storeTime returns the time that the scripts are given, 0 for the server's own.
func (o *Options) storeTime() limiter.Time {
	if o.at == nil {
		return 0
	}
	return o.at()
}

// fallBack decides b without the store, at a time of the store's clock.
func (o *Options) fallBack(now limiter.Time, b *limiter.Batch) (err error) {
	err = redis.ErrPanicked // unless it returns
	o.guard(func() {
		o.observe().Decided(byFallback, len(b.Charges))
		err = o.Fallback.decide(now, b, o.Table)
	})
	return err
}

// guard reports whether do returns. If it panics, which is a bug of ours, that is counted, and the
// goroutine, which others wait for, goes on.
func (o *Options) guard(do func()) (returned bool) {
	defer func() {
		if thrown := recover(); thrown != nil && o.Panicked != nil {
			o.Panicked(thrown)
		}
	}()
	do()
	return true
}

// answer has w know that its request is decided, or why not.
func (o *Options) answer(w limiter.Waiter, err error) { o.guard(func() { w.Decided(err) }) }
