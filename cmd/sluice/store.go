package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/server/daemon"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// storeFlags configures the shared store of counters.
type storeFlags struct {
	URL                   string `name:"store" placeholder:"URL" help:"Redis (6.2 or later) or Valkey that stores the counters, shared by all replicas: redis://host:port/database, unix:///path, redis+sentinel://host:port,host:port/master or redis+cluster://host:port,host:port; rediss for TLS. Default: counters are in memory."`
	AuthFile              string `name:"store-auth-file" placeholder:"FILE" help:"File with the password of the store, or user:password. Read for each new connection."`
	Auth                  string `name:"REDIS_AUTH" hidden:"" help:"Password of the store, or user:password."`
	SentinelAuthFile      string `name:"store-sentinel-auth-file" placeholder:"FILE" help:"File with the password of Sentinel, or user:password. Read for each new connection."`
	SentinelAuth          string `name:"REDIS_SENTINEL_AUTH" hidden:"" help:"Password of Sentinel, or user:password."`
	PerSecond             string `name:"store-per-second" placeholder:"URL" help:"Separate store for limits with a window of one second. Default: --store."`
	PerSecondAuthFile     string `name:"REDIS_PERSECOND_AUTH_FILE" hidden:"" placeholder:"FILE" help:"File with the password of --store-per-second, or user:password. Read for each new connection."`
	PerSecondAuth         string `name:"REDIS_PERSECOND_AUTH" hidden:"" help:"Password of --store-per-second, or user:password."`
	PerSecondSentinelAuth string `name:"REDIS_PERSECOND_SENTINEL_AUTH" hidden:"" help:"Password of the Sentinel of --store-per-second, or user:password."`
	redis.TLS             `embed:""`
	store.Options         `embed:""`
	Names                 string `name:"store-names" enum:"exact,ratelimit" default:"exact" placeholder:"exact|ratelimit" help:"Names of counters in the store: exact, which contain no client values, or ratelimit, those of envoyproxy/ratelimit where they are unambiguous, so that both programs share counters (see sluice check --store-names). Default: exact; ratelimit if REDIS_URL sets the store."`
	HashKeyFile           string `name:"hash-key-file" placeholder:"FILE" help:"File with a secret of 16 to 4096 bytes for hashing the names of counters, so that someone with access to the store cannot guess client values. Must be the same on all replicas. Read at startup only. Default: none."`
}

// storeStartTimeout bounds how long the start waits for the store. Only tests change it.
var storeStartTimeout = daemon.DefaultStoreStartTimeout

// storeTarget contains the flags of a store: the name and value of the flag with its URL, those of
// the file with its password, and other passwords.
type storeTarget struct{ name, url, authFileFlag, authFile, sentinelAuthFile, auth, sentinelAuth string }

// targets returns the store and the one for limits of one second.
func (f *storeFlags) targets() []storeTarget {
	return []storeTarget{
		{"--store", f.URL, "--store-auth-file", f.AuthFile, f.SentinelAuthFile, f.Auth, f.SentinelAuth},
		{"--store-per-second", f.PerSecond, "REDIS_PERSECOND_AUTH_FILE", f.PerSecondAuthFile, "", f.PerSecondAuth, f.PerSecondSentinelAuth},
	}
}

// Values of --store-names.
const (
	exactNames     = "exact"
	ratelimitNames = "ratelimit"
)

func (f *storeFlags) check(stateFile string) error {
	if f.URL == "" {
		for flag, value := range map[string]string{
			"--store-per-second": f.PerSecond, "--store-ca": f.CA, "--store-cert": f.Cert, "--store-key": f.Key, "--store-prefix": f.Prefix, "--hash-key-file": f.HashKeyFile,
			"--store-auth-file": f.AuthFile, "--store-sentinel-auth-file": f.SentinelAuthFile,
		} {
			if value != "" {
				return fmt.Errorf("%s requires --store", flag)
			}
		}
	}
	if f.Blocks == store.BlocksAuto && f.URL == "" {
		return errors.New("--store-blocks requires --store")
	}
	if _, err := f.readHashKey(); err != nil {
		return err
	}
	if f.URL != "" && stateFile != "" {
		return errors.New("--state-file and --store are mutually exclusive: the store keeps counters across a restart")
	}
	secure := false
	for _, u := range f.targets() {
		at, err := f.server(u)
		if err != nil {
			return err
		}
		secure = secure || at != nil && at.TLS != nil
		if at != nil && f.Blocks == store.BlocksAuto && (at.Nodes != nil || u.name == "--store-per-second") {
			remedy := "--store without --store-per-second"
			if at.Nodes != nil {
				remedy = "--store that is not a cluster"
			}
			return fmt.Errorf("--store-blocks auto requires a store with one primary, but %s is %s: use off, or a %s",
				u.name, at, remedy)
		}
	}
	if !secure && (f.CA != "" || f.Cert != "" || f.Key != "") {
		return errors.New("--store-ca, --store-cert and --store-key require a --store with TLS, whose scheme starts with rediss")
	}
	return nil
}

// server parses and checks u. It returns nil if u has no URL.
func (f *storeFlags) server(u storeTarget) (*redis.Server, error) {
	if u.url == "" {
		return nil, nil
	}
	at, err := redis.ParseURL(u.url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.name, err)
	}
	if u.sentinelAuthFile != "" && at.Sentinels == nil {
		return nil, errors.New("--store-sentinel-auth-file requires a --store with the scheme redis+sentinel or rediss+sentinel")
	}
	if u.auth != "" {
		at.Auth = redis.ParseAuth(u.auth)
	}
	if u.sentinelAuth != "" {
		at.SentinelAuth = redis.ParseAuth(u.sentinelAuth)
	}
	at.Auth.File = u.authFile
	at.SentinelAuth.File = u.sentinelAuthFile
	if at.TLS != nil {
		*at.TLS = f.TLS
	}
	if err := at.Check(); err != nil {
		return nil, flagError(err, u.authFileFlag, u.authFile, "--store-sentinel-auth-file", u.sentinelAuthFile,
			"--store-ca", f.CA, "--store-cert", f.Cert, "--store-key", f.Key)
	}
	return &at, nil
}

// options returns the options of the store, or nil if counters are in memory. It logs which store
// is used, and settings that may surprise the operator.
func (f *storeFlags) options(logger *zap.Logger) (*store.Options, error) {
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
	about := []zap.Field{
		zap.Stringer("store", at[0]), zap.String("fallback", string(f.Fallback)), zap.String("names", f.Names),
	}
	if at[1] != nil {
		about = append(about, zap.Stringer("per_second", at[1]))
	}
	logger.Info("using a shared store", about...)
	options := f.Options
	if options.Jitter == 0 {
		options.Jitter = -1
		logger.Warn("EXPIRATION_JITTER_MAX_SECONDS is 0: keys that expire together at the end of a window can block the store for a moment")
	}
	switch {
	case !f.SkipName:
	case at[0].TLS == nil && (at[1] == nil || at[1].TLS == nil):
		logger.Warn("environment: no effect: the store is used without TLS",
			zap.Strings("variables", []string{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"}))
	default:
		logger.Warn("host name verification of the store is disabled: anyone with a certificate of its CA can impersonate it")
	}
	options.Server = *at[0]
	options.PerSecond = at[1]
	return &options, nil
}

// namer returns the function that names counters in the store, or nil if counters are in memory.
func (f *storeFlags) namer() (*descriptors.Namer, error) {
	if f.URL == "" {
		return nil, nil
	}
	key, err := f.readHashKey()
	if err != nil {
		return nil, err
	}
	namer := descriptors.NewNamer
	if f.Names == ratelimitNames {
		namer = descriptors.NewRatelimitNamer
	}
	return namer(f.Prefix, key), nil
}

// identityKey returns the key for hashing the identities of counters. Replicas with the same hash
// key file have the same key, so their denied keys can be aggregated. Without the file the key is
// zero, and the table chooses a random one.
func (f *storeFlags) identityKey() (key identity.Key, err error) {
	secret, err := f.readHashKey()
	if err != nil || secret == nil {
		return identity.Key{}, err
	}
	sum := sha256.Sum256(append([]byte("sluice identities\n"), secret...))
	return identity.Key(sum[:identity.KeyBytes]), nil
}

// A hash key must be long enough to resist guessing. The maximum rejects files that are not keys.
const minHashKeyBytes, maxHashKeyBytes = 16, 4096

// readHashKey reads --hash-key-file without the newline at its end, which editors add. It returns
// nil if the flag is not given.
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
		return nil, fmt.Errorf("--hash-key-file: %s has more than %d bytes; must be %d to %d", f.HashKeyFile,
			maxHashKeyBytes, minHashKeyBytes, maxHashKeyBytes)
	case len(key) < minHashKeyBytes:
		return nil, fmt.Errorf("--hash-key-file: %s has %d bytes; must be %d to %d", f.HashKeyFile, len(key),
			minHashKeyBytes, maxHashKeyBytes)
	}
	return key, nil
}
