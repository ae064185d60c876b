package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
	"github.com/sluice-ratelimit/sluice/cmd/sluice/process"
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/ruleset"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// serveCmd has the flags of serve. Environment variables set the flags that the command line does
// not.
type serveCmd struct {
	environment *environment.Environment

	Config       []string `group:"rules" name:"config" short:"c" default:"./config" sep:"none" placeholder:"PATH" help:"Rule file or directory of rule files. May be repeated."`
	ConfigPrefix string   `group:"rules" name:"config-prefix" hidden:"" help:"Load only the files of --config whose path, with dots for slashes, starts with this prefix."`
	AllowEmpty   bool     `group:"rules" help:"Allow a configuration without rule files, at startup and on reload. Default: an error; a warning at startup if the program is named ratelimit."`
	StartEmpty   bool     `group:"rules" name:"start-empty" hidden:"" default:"${startEmpty}" help:"As --allow-empty, but at startup only."`
	OnBadStart   string   `group:"rules" enum:"exit,serve" default:"${onBadStart}" placeholder:"exit|serve" help:"What to do if rules fail to load at startup: exit, or serve (answer every request with an error until they load)."`
	Defaults     string   `group:"rules" placeholder:"FILE" help:"File with default values of rule fields such as algorithm and burst."`
	MergeDomains bool     `group:"rules" help:"Merge files with the same domain. Default: an error."`

	Tables           tableFlags `embed:"" group:"rules"`
	AllowEmptyTables bool       `group:"rules" help:"Allow the file of a table to lose all of its rows. Default: an error, and the rows stay active."`

	CalendarMonths bool `group:"decisions" help:"Use calendar months in UTC as the windows of monthly limits, unless a rule says otherwise. Default: 30-day windows since the Unix epoch."`

	AllOrNothing bool `group:"decisions" help:"If any limit denies a request, charge none of its counters (all_or_nothing), in all domains."`

	Server   server.Options  `embed:""`
	Settings answer.Settings `embed:""`
	TLS      tlsFlags        `embed:"" group:"tls"`
	Debug    debugFlags      `embed:"" group:"debug"`
	Store    storeFlags      `embed:"" group:"store"`
	XDS      xdsFlags        `embed:"" group:"xds"`
	Statsd   statsdFlags     `embed:"" group:"statsd"`
	Tracing  tracingFlags    `embed:"" group:"tracing"`
	State    stateFlags      `embed:"" group:"state"`

	CounterMemory            int64  `group:"bounds" type:"size" default:"64MiB" placeholder:"SIZE" help:"Memory for counters, outside the Go heap. If it is full, counters are evicted, and limits may admit more."`
	ResponseTimeMilliseconds bool   `group:"process" help:"Report ratelimit_service_response_time_seconds in milliseconds, despite its name, for dashboards that expect them."`
	LogLevel                 string `group:"process" default:"info" placeholder:"LEVEL" help:"Minimum level of log lines: debug, info, warn or error."`
	LogFormat                string `group:"process" default:"text" placeholder:"text|json" help:"Log format: text or json."`
}

// BeforeResolve adds the environment as a source of flags.
func (s *serveCmd) BeforeResolve(ctx *kong.Context) (err error) {
	s.environment, err = environment.Resolve(ctx, nil)
	return err
}

func (s *serveCmd) Run(ctx context.Context, c console, ignored ignoredArguments) error {
	// A log whose reader has exited must not terminate the service.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signalContext(ctx)
	defer stop()
	return s.environment.NameVariables(s.run(ctx, c, ignored))
}

// run logs through a queue, so that neither requests nor the shutdown wait for the reader of the
// log.
func (s *serveCmd) run(ctx context.Context, c console, ignored ignoredArguments) error {
	queue := telemetry.NewLogQueue(c.err)
	go queue.Run()
	err := s.serveAndLog(ctx, queue, ignored)
	if !queue.Close(logFlushTimeout) && err != nil {
		return errFailed // printing the error would block as the log does
	}
	return err
}

func (s *serveCmd) serveAndLog(ctx context.Context, log *telemetry.LogQueue, ignored ignoredArguments) error {
	logger, err := telemetry.NewLogger(log, s.LogLevel, s.LogFormat)
	if err != nil {
		return err
	}
	logger.Info("starting", zap.String("version", version()))
	process.TuneGC()
	ignored.log(logger)
	s.environment.Report(logger)
	metrics, err := telemetry.New(telemetry.Options{Tags: s.Statsd.Tags, Milliseconds: s.ResponseTimeMilliseconds, Build: currentBuild(), Started: time.Now().UTC()})
	if err != nil {
		return err
	}
	metrics.WatchLog(log)
	d := &daemon{metrics: metrics, logger: metrics.Events.Watch(logger)}
	if err := s.build(d); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx)) // draining needs the store
	group.Go(func() error {
		defer stopStore()
		return s.serve(ctx, group, d)
	})
	if d.store != nil {
		group.Go(task(storeCtx, d.store.Run))
	}
	return waitForShutdown(ctx, s.Server.DrainDelay+s.Server.DrainTimeout+shutdownMargin, group.Wait)
}

// daemon contains the parts of the service that exist before rules are loaded.
type daemon struct {
	metrics *telemetry.Metrics
	logger  *zap.Logger
	table   *limiter.Table
	state   *stateFile // nil for none
	tables  *tables.Registry
	store   *store.Store // nil if the counters are in memory
	service *answer.Service
	loader  *ruleset.Loader
}

// build sets the fields of d other than the metrics and the logger.
func (s *serveCmd) build(d *daemon) (err error) {
	counters := limiter.Options{Bytes: s.CounterMemory}
	if counters.Key, err = s.Store.identityKey(); err != nil {
		return err
	}
	if d.table, d.state, err = s.State.openTable(counters, d.metrics, d.logger); err != nil {
		return fmt.Errorf("--counter-memory: %w", err)
	}
	process.SetMemoryLimit(d.table.Stats().Bytes, d.logger)
	d.metrics.WatchTable(func() telemetry.TableStats { return tableStats(d.table) })
	if d.store, err = s.Store.open(d.table, d.metrics, d.logger); err != nil {
		return err
	}
	settings := s.settings()
	if d.tables, err = s.Tables.registry(); err != nil {
		return err
	}
	settings.Tables, settings.TableMetrics = d.tables, ruleset.NewTableMetrics(d.metrics, d.tables)
	if err := s.Store.configureDecider(d.store, &settings); err != nil {
		return err
	}
	d.service = answer.NewService(settings, d.table, d.metrics)
	d.loader = ruleset.New(ruleset.Options{
		Service: d.service, Tables: d.tables, TableMetrics: settings.TableMetrics, Metrics: d.metrics, Logger: d.logger, Now: now,
		DefaultsFile: s.Defaults, AllowEmptyTables: s.AllowEmptyTables, ExitOnBadStart: s.OnBadStart == "exit",
		Allow: s.TLS.allow, DrainTimeout: s.Server.DrainTimeout, SharedStore: d.store != nil, GRPCGo: s.Server.Transport == "grpc-go",
	})
	return nil
}

func tableStats(table *limiter.Table) telemetry.TableStats {
	totals := table.Stats()
	out := telemetry.TableStats{Bytes: totals.Bytes, Used: totals.Used, Reclaimed: totals.Reclaimed}
	for _, c := range table.Classes(now()) {
		out.Classes = append(out.Classes, telemetry.ClassStats{
			Domain: descriptors.MetricDomain(c.Partition), CounterBytes: c.CounterBytes,
			Capacity: c.Capacity, Live: c.Live, Evicted: c.Evicted,
		})
	}
	return out
}

// serve loads rules and answers requests until ctx ends. Its other goroutines run in group.
func (s *serveCmd) serve(ctx context.Context, group *errgroup.Group, d *daemon) error {
	closeTables, err := s.openJournals(d.loader)
	defer closeTables()
	if err != nil {
		return err
	}
	follow := s.followFiles
	if s.XDS.Target != "" {
		follow = s.followServer
	}
	if err := follow(ctx, group, d); err != nil || ctx.Err() != nil {
		return err
	}
	stopStatsd, err := s.Statsd.start(ctx, d.metrics, d.logger)
	if err != nil {
		return err
	}
	defer stopStatsd()
	options := s.Server
	options.Optional = s.environment.DefaultAddrs("http-addr", "debug-addr", "metrics-addr")
	limits := &options.Limits
	limits.MaxConnections, limits.MaxHTTPConnections = process.ConnectionLimits(limits.MaxConnections, limits.MaxHTTPConnections, d.logger)
	if options.TLS, err = s.TLS.serverTLS(d.metrics, d.logger); err != nil {
		return err
	}
	if err := s.Debug.configureTLS(ctx, group, &options, d.metrics, d.logger); err != nil {
		return err
	}
	tracing, stopTracing, err := s.Tracing.start(ctx, d.metrics, d.logger)
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	defer stopTracing()
	options.Tracing = tracing
	if d.store != nil {
		options.Elector = d.store
		options.Name, _ = os.Hostname() // only for display
	}
	if d.store != nil {
		if s.Store.awaitStore(ctx, group, d.store.Await, d.logger); ctx.Err() != nil {
			return nil
		}
	}
	srv := server.New(options, d.service, d.logger)
	if err := srv.Listen(ctx); err != nil {
		return err
	}
	if options.TLS != nil {
		group.Go(task(ctx, options.TLS.Run))
	}
	defer d.state.start(ctx)()
	return srv.Run(ctx)
}

// compileOptions returns the options for compiling rules of any source.
func (s *serveCmd) compileOptions(d *daemon) descriptors.Options {
	return descriptors.Options{
		MergeDomains:   s.MergeDomains,
		AllOrNothing:   s.AllOrNothing,
		CalendarMonths: s.CalendarMonths,
		HashKey:        d.table.Key(),
		Tables:         d.tables,
		TablesLater:    true,
		RatelimitNames: s.Store.URL != "" && s.Store.Names == ratelimitNames,
	}
}

// followFiles loads the rules from files, and again whenever these change.
func (s *serveCmd) followFiles(ctx context.Context, group *errgroup.Group, d *daemon) error {
	return d.loader.Follow(ctx, group, source.NewFiles(source.Options{
		Paths:       s.Config,
		Prefix:      s.ConfigPrefix,
		Defaults:    s.Defaults,
		AllowEmpty:  s.AllowEmpty,
		StartEmpty:  s.StartEmpty,
		Options:     s.compileOptions(d),
		OnUnwatched: d.loader.WarnUnwatched,
	}))
}

// followServer loads the rules from a management server. It returns when the first rules have
// arrived or ctx ends; with --start-without-rules it returns immediately.
func (s *serveCmd) followServer(ctx context.Context, group *errgroup.Group, d *daemon) error {
	if err := d.loader.Follow(ctx, group, nil); err != nil { // table files
		return err
	}
	x, err := s.XDS.newClient(d, s.compileOptions(d))
	if err != nil {
		return err
	}
	x.start(ctx, group, s.Defaults)
	if s.XDS.StartWithout {
		return nil
	}
	if err := x.awaitFirst(ctx); err != nil && s.OnBadStart == "exit" {
		return fmt.Errorf("%w\n(--on-bad-start=serve starts without rules until they load)", err)
	}
	return nil
}

// settings returns the settings of the service, completed from other flags.
func (s *serveCmd) settings() answer.Settings {
	settings := s.Settings
	settings.Allow, settings.Clock, settings.Bounds.MessageBytes = s.TLS.allow, clock.New(), s.Server.Limits.MaxMessageBytes
	return settings
}

// now returns the wall-clock time. The time of a request is read where it arrives.
func now() limiter.Time { return limiter.Time(time.Now().UnixNano()) }
