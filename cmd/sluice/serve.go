package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// serveCmd is the flags of serve. Where an environment variable is named it is
// envoyproxy/ratelimit's, and means what it means there; flags beat it.
type serveCmd struct {
	Config     []string `name:"config" short:"c" default:"./config" sep:"none" placeholder:"PATH" help:"File or directory of rules; may be repeated. Default ./config."`
	AllowEmpty bool     `help:"Accept at a reload that no rule file is left."`
	OnBadStart string   `enum:"exit,serve" default:"${onBadStart}" help:"What to do if the rules are bad at the start: exit, or serve errors until they are good. Default ${onBadStart}."`
	ForceStart bool     `name:"force-start" env:"FORCE_START_WITHOUT_INITIAL_CONFIG" hidden:"" help:"The same as --on-bad-start=serve."`

	MergeDomains bool `env:"MERGE_DOMAIN_CONFIG" help:"Merge files of one domain; else that is an error."`
	AllOrNothing bool `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" help:"Set all_or_nothing for all domains: a refused request charges nothing."`

	GRPCAddr    string `name:"grpc-addr" default:":8081" help:"Address of the rate-limit service: host:port, unix:///path or unix:@name. Port 0 picks a free one. Default :8081."`
	HTTPAddr    string `name:"http-addr" default:":8080" help:"Address of /healthcheck and /json; empty switches it off. Default :8080."`
	DebugAddr   string `name:"debug-addr" default:"127.0.0.1:6070" help:"Address of /rlconfig, /stats and profiles, without authentication; empty switches it off. Default 127.0.0.1:6070."`
	MetricsAddr string `name:"metrics-addr" default:":9090" help:"Address of /metrics; empty switches it off. Default :9090."`

	ShadowMode     bool    `env:"SHADOW_MODE" help:"Let every request pass; statuses, counting and metrics stay."`
	QuotaMode      bool    `env:"QUOTA_MODE" help:"Treat every descriptor as a quota: refuse only when all are over."`
	NearLimitRatio float32 `env:"NEAR_LIMIT_RATIO" default:"0.8" help:"Share of a limit above which hits count as near_limit, 0 to 1. Default 0.8."`

	ResponseHeaders  bool   `env:"LIMIT_RESPONSE_HEADERS_ENABLED" help:"Add response headers with limit, remaining and reset."`
	LimitHeader      string `env:"LIMIT_LIMIT_HEADER" default:"RateLimit-Limit" help:"Name of the header with the limit. Default RateLimit-Limit."`
	RemainingHeader  string `env:"LIMIT_REMAINING_HEADER" default:"RateLimit-Remaining" help:"Name of the header with what remains. Default RateLimit-Remaining."`
	ResetHeader      string `env:"LIMIT_RESET_HEADER" default:"RateLimit-Reset" help:"Name of the header with the seconds until the reset. Default RateLimit-Reset."`
	RetryAfterHeader bool   `help:"Add Retry-After to refusals."`
	DynamicMetadata  bool   `env:"RESPONSE_DYNAMIC_METADATA" help:"Describe request and matched metadata in the reply's dynamic metadata."`
	DecisionMetadata bool   `help:"Add what was decided to the dynamic metadata, under the key sluice."`
	GRPCStatusCodes  string `name:"grpc-status-codes" enum:"compatible,precise" default:"compatible" help:"Status codes of errors: compatible (UNKNOWN, as envoyproxy/ratelimit) or precise (INVALID_ARGUMENT, UNAVAILABLE)."`

	CounterMemory  byteSize      `default:"64MiB" placeholder:"SIZE" help:"Memory for counters, such as 64MiB. Default 64MiB."`
	MaxDescriptors int           `default:"1000" help:"Most descriptors of one request. Default 1000."`
	MaxMessage     byteSize      `name:"max-message" default:"64KiB" placeholder:"SIZE" help:"Largest request. Default 64KiB."`
	MaxStreams     uint32        `default:"1024" help:"Most calls in flight on one connection. Default 1024."`
	MaxConnections int           `default:"10000" help:"Most gRPC connections. Default 10000."`
	MaxConnAge     time.Duration `name:"max-connection-age" default:"24h" env:"GRPC_MAX_CONNECTION_AGE" help:"End connections after this time, give or take a tenth, so that clients spread over new replicas; 0 means never. Default 24h."`

	DrainDelay   time.Duration `default:"0s" help:"Time between turning unhealthy and refusing new calls at SIGTERM. Default 0s."`
	DrainTimeout time.Duration `default:"30s" help:"Longest wait for calls in flight at SIGTERM. Default 30s."`

	LogLevel  string `env:"LOG_LEVEL" default:"info" help:"debug, info, warn or error. Default info."`
	LogFormat string `env:"LOG_FORMAT" default:"text" help:"text or json. Default text."`

	LocalCache string `name:"local-cache-size-in-bytes" env:"LOCAL_CACHE_SIZE_IN_BYTES" hidden:"" help:"No effect: there is no cache beside the counters."`
}

// Validate checks what the types do not.
func (s *serveCmd) Validate() error {
	if !(s.NearLimitRatio >= 0 && s.NearLimitRatio <= 1) {
		return fmt.Errorf("--near-limit-ratio (NEAR_LIMIT_RATIO) is %v: must be between 0 and 1", s.NearLimitRatio)
	}
	for _, h := range []struct{ flag, name string }{
		{"--limit-header (LIMIT_LIMIT_HEADER)", s.LimitHeader},
		{"--remaining-header (LIMIT_REMAINING_HEADER)", s.RemainingHeader},
		{"--reset-header (LIMIT_RESET_HEADER)", s.ResetHeader},
	} {
		if h.name != "" && !isToken(h.name) {
			return fmt.Errorf("%s is %q: must be a header name, or empty to leave it out", h.flag, h.name)
		}
	}
	for _, n := range []struct {
		flag string
		low  bool
	}{
		{"--max-descriptors", s.MaxDescriptors < 1},
		{"--max-message", s.MaxMessage < 1},
		{"--max-streams", s.MaxStreams < 1},
		{"--max-connections", s.MaxConnections < 1},
		{"--drain-timeout", s.DrainTimeout <= 0},
	} {
		if n.low {
			return fmt.Errorf("%s must be above 0", n.flag)
		}
	}
	if s.DrainDelay < 0 || s.MaxConnAge < 0 {
		return errors.New("--drain-delay and --max-connection-age (GRPC_MAX_CONNECTION_AGE) must not be negative")
	}
	return nil
}

// isToken reports whether name is a header name: a token of RFC 9110, 5.6.2.
func isToken(name string) bool {
	return name != "" && strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// Run serves until ctx is done.
func (s *serveCmd) Run(ctx context.Context, c console) error {
	logger, err := telemetry.NewLogger(c.err, s.LogLevel, s.LogFormat)
	if err != nil {
		return err
	}
	logger.Info("starting", zap.String("version", version()))
	if s.LocalCache != "" {
		logger.Info("LOCAL_CACHE_SIZE_IN_BYTES has no effect: counters are in memory already")
	}
	table, err := limiter.New(limiter.Options{Bytes: int64(s.CounterMemory)})
	if err != nil {
		return fmt.Errorf("--counter-memory: %w", err)
	}
	metrics := telemetry.New()
	metrics.WatchTable(func() telemetry.TableStats {
		st := table.Stats()
		return telemetry.TableStats{
			Capacity: st.Capacity, Bytes: st.Bytes, Live: table.Live(now()),
			Reclaimed: st.Reclaimed, GivenUp: st.GivenUp,
		}
	})
	service := server.NewService(s.settings(), table, metrics)
	r := rules{service: service, metrics: metrics, logger: logger}
	source := descriptors.NewSource(descriptors.SourceOptions{
		Paths:      s.Config,
		AllowEmpty: s.AllowEmpty,
		Options: descriptors.Options{
			MergeDomains: s.MergeDomains,
			AllOrNothing: s.AllOrNothing,
			HashKey:      limiter.NewHashKey(),
		},
		OnLoad: r.take,
		OnUnwatched: func(err error) {
			logger.Warn("rule files cannot be watched and are read each second instead", zap.Error(err))
		},
	})
	r.take(source.Load())
	if service.Rules() == nil {
		if s.OnBadStart == "exit" && !s.ForceStart {
			return errors.New("no rules to serve; --on-bad-start=serve starts without them and waits for good ones")
		}
		logger.Warn("serving without rules: every request gets an error until they load")
	}
	srv := server.New(s.options(), service, metrics, logger)
	if err := srv.Listen(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		source.Run(ctx)
		return nil
	})
	group.Go(func() error { return srv.Run(ctx) })
	return group.Wait()
}

func (s *serveCmd) settings() server.Settings {
	settings := server.Settings{
		ShadowMode:       s.ShadowMode,
		QuotaMode:        s.QuotaMode,
		NearLimitRatio:   s.NearLimitRatio,
		RetryAfter:       s.RetryAfterHeader,
		DynamicMetadata:  s.DynamicMetadata,
		DecisionMetadata: s.DecisionMetadata,
		MaxDescriptors:   s.MaxDescriptors,
	}
	if s.ResponseHeaders {
		settings.Headers = &server.Headers{Limit: s.LimitHeader, Remaining: s.RemainingHeader, Reset: s.ResetHeader}
	}
	return settings
}

func (s *serveCmd) options() server.Options {
	return server.Options{
		GRPCAddr: s.GRPCAddr, HTTPAddr: s.HTTPAddr, DebugAddr: s.DebugAddr, MetricsAddr: s.MetricsAddr,
		Limits: server.Limits{
			MaxMessageBytes:  int(s.MaxMessage),
			MaxStreams:       s.MaxStreams,
			MaxConnections:   s.MaxConnections,
			MaxConnectionAge: s.MaxConnAge,
		},
		PreciseCodes: s.GRPCStatusCodes == "precise",
		DrainDelay:   s.DrainDelay,
		DrainTimeout: s.DrainTimeout,
	}
}

// now is the wall clock, for metrics; requests read their own.
func now() limiter.Time { return limiter.Time(time.Now().UnixNano()) }

// rules puts what a source read in force and tells operators.
type rules struct {
	service *server.Service
	metrics *telemetry.Metrics
	logger  *zap.Logger
}

func (r rules) take(u descriptors.Update) {
	for _, d := range u.Diagnostics {
		if d.Severity == descriptors.Warning {
			r.logger.Warn("rules: " + d.String())
		}
	}
	if u.Err != nil {
		r.metrics.ConfigRefused()
		r.logger.Error("rules do not load; what is in force stays", zap.Error(u.Err))
		return
	}
	if r.service.Rules() == u.Set {
		r.metrics.ConfigRestored()
		r.logger.Info("rule files are back at what is in force", zap.String("hash", u.Set.Hash))
		return
	}
	r.service.Serve(u.Set)
	r.metrics.ConfigLoaded(u.Set.Hash, float64(time.Now().UnixMilli())/1e3)
	r.logger.Info("rules loaded", zap.String("hash", u.Set.Hash), zap.Int("limits", len(u.Set.Limits)),
		zap.Strings("domains", u.Set.Domains()))
}
