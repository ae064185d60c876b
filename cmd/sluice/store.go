package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// storeFlags say where counters are that replicas share.
type storeFlags struct {
	URL                       string `name:"store" placeholder:"URL" help:"Redis (6.2 or later) or Valkey that stores the counters, shared by all replicas: redis://host:port/database, unix:///path, redis+sentinel://host:port,host:port/master or redis+cluster://host:port,host:port; rediss for TLS. Default: counters are in memory."`
	AuthFile                  string `name:"store-auth-file" placeholder:"FILE" help:"File with the password of the store, or user:password. Read for each new connection."`
	Auth                      string `name:"store-auth" hidden:"" help:"Password of the store, for REDIS_AUTH. Visible to other users in the process list."`
	SentinelAuthFile          string `name:"store-sentinel-auth-file" placeholder:"FILE" help:"File with the password of Sentinel, or user:password. Read for each new connection."`
	SentinelAuth              string `name:"store-sentinel-auth" hidden:"" help:"Password of Sentinel, for REDIS_SENTINEL_AUTH."`
	PerSecond                 string `name:"store-per-second" placeholder:"URL" help:"Separate store for limits with a window of one second. Default: --store."`
	PerSecondAuthFile         string `name:"store-per-second-auth-file" placeholder:"FILE" help:"File with the password of --store-per-second, or user:password. Read for each new connection."`
	PerSecondAuth             string `name:"store-per-second-auth" hidden:"" help:"Password of --store-per-second, for REDIS_PERSECOND_AUTH."`
	PerSecondSentinelAuthFile string `name:"store-per-second-sentinel-auth-file" placeholder:"FILE" help:"File with the password of the Sentinel of --store-per-second, or user:password. Read for each new connection."`
	PerSecondSentinelAuth     string `name:"store-per-second-sentinel-auth" hidden:"" help:"Password of the Sentinel of --store-per-second, for REDIS_PERSECOND_SENTINEL_AUTH."`
	redis.TLS                 `embed:""`
	store.Options             `embed:""`
	Names                     string `name:"store-names" enum:"exact,ratelimit" default:"exact" placeholder:"exact|ratelimit" help:"Names of counters in the store: exact, which contain no client values, or ratelimit, those of envoyproxy/ratelimit where they are unambiguous, so that both programs share counters (see sluice check --store-names). Default: exact; ratelimit if REDIS_URL sets the store."`
	HashKeyFile               string `name:"hash-key-file" placeholder:"FILE" help:"File with a secret of 16 to 4096 bytes for hashing the names of counters, so that someone with access to the store cannot guess client values. Must be the same on all replicas. Read at startup only. Default: none."`
}

// A storeURL is a flag that says where a store is, with its passwords and the flags that name their files.
type storeTarget struct{ name, url, authFile, sentinelAuthFile, auth, sentinelAuth string }

// targets returns the flags of the store, and of the one for limits of one second.
func (f *storeFlags) targets() []storeTarget {
	return []storeTarget{
		{"--store", f.URL, f.AuthFile, f.SentinelAuthFile, f.Auth, f.SentinelAuth},
		{"--store-per-second", f.PerSecond, f.PerSecondAuthFile, f.PerSecondSentinelAuthFile, f.PerSecondAuth, f.PerSecondSentinelAuth},
	}
}

// The values of --store-names.
const (
	exactNames     = "exact"
	ratelimitNames = "ratelimit"
)

func (f *storeFlags) check(stateFile string) error {
	if f.URL == "" {
		for flag, value := range map[string]string{
			"--store-per-second": f.PerSecond, "--store-ca": f.CA, "--store-cert": f.Cert, "--store-key": f.Key, "--store-prefix": f.Prefix, "--hash-key-file": f.HashKeyFile,
		} {
			if value != "" {
				return fmt.Errorf("%s needs --store: without it counters are in memory", flag)
			}
		}
	}
	if _, err := f.readHashKey(); err != nil {
		return err
	}
	if f.URL != "" && stateFile != "" {
		return errors.New("--state-file does not go with --store: counters are in the store, which keeps them over a restart")
	}
	secure := false
	for _, u := range f.targets() {
		at, err := f.server(u)
		if err != nil {
			return err
		}
		secure = secure || at != nil && at.TLS != nil
	}
	if f.SkipName && !secure {
		return errors.New("--store-skip-name needs a --store whose scheme begins with rediss: others have no TLS")
	}
	if !secure && (f.CA != "" || f.Cert != "" || f.Key != "") {
		return errors.New("--store-ca, --store-cert and --store-key need a --store whose scheme begins with rediss: others have no TLS")
	}
	return nil
}

// server returns what is needed to reach the store of u, nil without one.
func (f *storeFlags) server(u storeTarget) (*redis.Server, error) {
	if u.url == "" {
		for flag, value := range map[string]string{u.name + "-auth-file": u.authFile, u.name + "-sentinel-auth-file": u.sentinelAuthFile} {
			if value != "" {
				return nil, fmt.Errorf("%s needs %s: without it there is nothing to show a password to", flag, u.name)
			}
		}
		return nil, nil
	}
	at, err := redis.ParseURL(u.url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.name, err)
	}
	if u.sentinelAuthFile != "" && at.Sentinels == nil {
		return nil, fmt.Errorf("%s-sentinel-auth-file needs a %s of the scheme redis+sentinel or rediss+sentinel", u.name, u.name)
	}
	if u.auth != "" {
		at.Auth = redis.ParseAuth(u.auth)
	}
	if u.sentinelAuth != "" {
		at.SentinelAuth = redis.ParseAuth(u.sentinelAuth)
	}
	at.Auth.File, at.SentinelAuth.File = u.authFile, u.sentinelAuthFile
	if at.TLS != nil {
		*at.TLS = f.TLS
	}
	if err := at.Check(); err != nil {
		return nil, flagError(err, u.name+"-auth-file", u.authFile, u.name+"-sentinel-auth-file", u.sentinelAuthFile,
			"--store-ca", f.CA, "--store-cert", f.Cert, "--store-key", f.Key)
	}
	return &at, nil
}

// open returns the store, nil without one. The caller runs it. Table is what decides while the
// store is away.
func (f *storeFlags) open(table *limiter.Table, metrics *telemetry.Metrics, logger *zap.Logger) (*store.Store, error) {
	if f.URL == "" {
		return nil, nil
	}
	var at [2]*redis.Server
	for i, u := range f.targets() {
		var err error
		if at[i], err = f.server(u); err != nil {
			return nil, err
		}
	}
	about := []zap.Field{zap.Stringer("store", at[0]), zap.String("fallback", string(f.Fallback)), zap.String("names", f.Names)}
	if at[1] != nil {
		about = append(about, zap.Stringer("per_second", at[1]))
	}
	logger.Info("counting in a store", about...)
	options := f.Options
	if options.Jitter == 0 {
		options.Jitter = -1
		logger.Warn("--store-jitter is 0: keys that expire together at a window's end can stop the store for a moment")
	}
	if f.SkipName {
		logger.Warn("the store's certificate may be for any host name: whoever has one of its authorities can be the store")
	}
	options.Server, options.PerSecond, options.Table = *at[0], at[1], table
	options.Log, options.Panicked = f.callbacks(logger), telemetry.NewPanics(metrics.Panics, logger).Report
	var shared *store.Store // nobody reads metrics yet
	kinds := make([]string, len(redis.Kinds))
	for i, k := range redis.Kinds {
		kinds[i] = string(k)
	}
	options.Observer = metrics.Store(store.Deciders, kinds, func() map[string]bool { return shared.Shards() }, func() time.Duration { return shared.Offset() })
	var err error
	shared, err = store.New(options)
	return shared, err
}

// storeStartTimeout is how long a start waits for the first answer of the store. Only tests change it.
var storeStartTimeout = time.Second

// awaitStore waits until reached, which is [store.Store.Await], reports that every primary has answered, or ctx ends, and for
// storePatience at most. So a healthy store decides the first requests, too. If it does not answer in time the log says so, and
// again when it does.
func (f *storeFlags) awaitStore(ctx context.Context, group *errgroup.Group, reached func(context.Context) bool, logger *zap.Logger) {
	within, cancel := context.WithTimeout(ctx, storeStartTimeout)
	defer cancel()
	if reached(within) || ctx.Err() != nil {
		return
	}
	began := time.Now()
	telemetry.Raise(logger, telemetry.StoreNotReached, "",
		zap.Duration("within", storeStartTimeout), zap.String("fallback", string(f.Fallback)))
	group.Go(func() error {
		if reached(ctx) {
			logger.Info("the store was reached", zap.Duration("after", storeStartTimeout+time.Since(began)), telemetry.Clear("", telemetry.StoreNotReached))
		}
		return nil
	})
}

// callbacks has what an operator should know of a store logged.
func (f *storeFlags) callbacks(logger *zap.Logger) store.Log {
	fallback := zap.String("fallback", string(f.Fallback))
	return store.Log{
		Unavailable: func(shard string, kind redis.Kind, err error, remedy string) {
			fields := []zap.Field{zap.String("store", shard), zap.String("kind", string(kind)), zap.Error(err), fallback}
			if remedy != "" {
				fields = append(fields, zap.String("remedy", remedy))
			}
			telemetry.Raise(logger, telemetry.StoreUnavailable, shard, fields...)
		},
		Recovered: func(shard string, after time.Duration, charged store.Synced) {
			fields := []zap.Field{zap.String("store", shard), zap.Duration("after", after)}
			if charged.Counters > 0 {
				fields = append(fields, zap.Uint64("charged_hits", charged.Hits), zap.Uint64("exceeded_hits", charged.Exceeded), zap.Int("counters", charged.Counters))
			}
			logger.Info("the store is back", append(fields, telemetry.Clear(shard, telemetry.StoreUnavailable))...)
		},
		Replaced: func(shard string) {
			logger.Info("the store is back: other primaries have the slots of this one", zap.String("store", shard), telemetry.Clear(shard, telemetry.StoreUnavailable))
		},
		Foreign: func(shard, key string, err error) {
			logger.Error("another program wrote a counter's key, and the fallback decides requests on it", zap.String("store", shard), zap.String("key", key), zap.Error(err), fallback)
		},
	}
}

// configureDecider has requests decided by the store, if there is one.
func (f *storeFlags) configureDecider(shared *store.Store, settings *answer.Settings) error {
	if shared == nil {
		return nil
	}
	key, err := f.readHashKey()
	if err != nil {
		return err
	}
	namer := descriptors.NewNamer
	if f.Names == ratelimitNames {
		namer = descriptors.NewRatelimitNamer
	}
	settings.Decider, settings.Namer = shared, namer(f.Prefix, key)
	return nil
}

// identityKey returns the secret of counters' identities, which is the same in all replicas with the same hash key file:
// so what they say of keys that are denied can be added up. Without the file it is zero, and the table chooses one.
func (f *storeFlags) identityKey() (key identity.Key, err error) {
	secret, err := f.readHashKey()
	if err != nil || secret == nil {
		return identity.Key{}, err
	}
	sum := sha256.Sum256(append([]byte("sluice identities\n"), secret...))
	return identity.Key(sum[:identity.KeyBytes]), nil
}

// A hash key has at least so many bytes, so that nobody guesses it, and at most so many, so that
// another file is noticed.
const minHashKeyBytes, maxHashKeyBytes = 16, 4096

// readHashKey reads what names are hashed with, nothing without a file. The end of a line at its end
// is not part of it: editors add one.
func (f *storeFlags) readHashKey() ([]byte, error) {
	if f.HashKeyFile == "" {
		return nil, nil
	}
	file, err := os.Open(f.HashKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--hash-key-file: %w", err)
	}
	defer file.Close()
	key, err := io.ReadAll(io.LimitReader(file, maxHashKeyBytes+3))
	if err != nil {
		return nil, fmt.Errorf("--hash-key-file: %w", err)
	}
	key = bytes.TrimRight(key, "\r\n")
	switch {
	case len(key) > maxHashKeyBytes:
		return nil, fmt.Errorf("--hash-key-file: %s has more than %d bytes; must be %d to %d", f.HashKeyFile, maxHashKeyBytes, minHashKeyBytes, maxHashKeyBytes)
	case len(key) < minHashKeyBytes:
		return nil, fmt.Errorf("--hash-key-file: %s has %d bytes; must be %d to %d", f.HashKeyFile, len(key), minHashKeyBytes, maxHashKeyBytes)
	}
	return key, nil
}
