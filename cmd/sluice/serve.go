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
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// serveCmd is the flags of serve. Package environment has what variables say. Flags
// beat them.
type serveCmd struct {
	environment *environment.Environment

	Config       []string `group:"rules" name:"config" short:"c" default:"./config" sep:"none" placeholder:"PATH" help:"File or directory of rules; may be repeated."`
	ConfigPrefix string   `group:"rules" name:"config-prefix" hidden:"" help:"Of the files of --config only those whose path there, with dots for slashes, begins so."`
	AllowEmpty   bool     `group:"rules" help:"Accept that there is no rule file, at the start or at a reload. Default: an error; under the name ratelimit a warning at the start."`
	StartEmpty   bool     `group:"rules" name:"start-empty" hidden:"" default:"${startEmpty}" help:"Accept it at the start only."`
	OnBadStart   string   `group:"rules" enum:"exit,serve" default:"${onBadStart}" placeholder:"exit|serve" help:"If the rules are bad at the start: exit, or serve errors until they are good."`
	Defaults     string   `group:"rules" placeholder:"FILE" help:"Words such as algorithm and burst for rules without them."`
	MergeDomains bool     `group:"rules" help:"Merge files of one domain. Default: two files of one domain are an error."`

	Tables           tableFlags `embed:"" group:"rules"`
	AllowEmptyTables bool       `group:"rules" help:"Accept that the file of a table that has rows changes to one without any. Default: that is an error, and the rows stay."`

	CalendarMonths bool `group:"decisions" help:"Months of rules and requests are those of the calendar in UTC, where rules do not say otherwise. Default: 30 days from the epoch on."`

	AllOrNothing bool `group:"decisions" help:"Set all_or_nothing for all domains: a denied request charges nothing."`

	Server   server.Options  `embed:""`
	Settings answer.Settings `embed:""`
	TLS      tlsFlags        `embed:"" group:"tls"`
	Debug    debugFlags      `embed:"" group:"debug"`
	Store    storeFlags      `embed:"" group:"store"`
	XDS      xdsFlags        `embed:"" group:"xds"`
	Statsd   statsdFlags     `embed:"" group:"statsd"`
	Tracing  tracingFlags    `embed:"" group:"tracing"`
	State    stateFlags      `embed:"" group:"state"`

	CounterMemory            int64  `group:"bounds" type:"size" default:"64MiB" placeholder:"SIZE" help:"Memory for counters."`
	ResponseTimeMilliseconds bool   `group:"process" help:"Measure ratelimit_service_response_time_seconds in milliseconds, in spite of its name, for dashboards that expect them."`
	LogLevel                 string `group:"process" default:"info" placeholder:"LEVEL" help:"debug, info, warn or error."`
	LogFormat                string `group:"process" default:"text" placeholder:"text|json" help:"Write lines for people, or JSON for programs."`
}

// BeforeResolve has the environment set the flags that the command line does not give.
func (s *serveCmd) BeforeResolve(ctx *kong.Context) (err error) {
	s.environment, err = environment.Resolve(ctx, nil)
	return err
}

func (s *serveCmd) Run(ctx context.Context, c console, dropped droppedArguments) error {
	// The reader of the log may go away. Without this a write to its broken pipe would
	// end the service.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := untilSignal(ctx)
	defer stop()
	return s.environment.Blame(s.run(ctx, c, dropped))
}

// run logs through a queue, so that neither requests nor the end wait for the log's
// reader.
func (s *serveCmd) run(ctx context.Context, c console, dropped droppedArguments) error {
	queue := telemetry.NewLogQueue(c.err)
	go queue.Run()
	err := s.serveAndLog(ctx, queue, dropped)
	if !queue.Close(logPatience) && err != nil {
		return errFailed // to tell more would wait as the log does
	}
	return err
}

func (s *serveCmd) serveAndLog(ctx context.Context, log *telemetry.LogQueue, dropped droppedArguments) error {
	logger, err := telemetry.NewLogger(log, s.LogLevel, s.LogFormat)
	if err != nil {
		return err
	}
	logger.Info("starting", zap.String("version", version()))
	process.PaceCollector()
	dropped.report(logger)
	s.environment.Report(logger)
	metrics, err := telemetry.New(telemetry.Options{Tags: s.Statsd.Tags, Milliseconds: s.ResponseTimeMilliseconds, Build: thisBuild(), Started: time.Now().UTC()})
	if err != nil {
		return err
	}
	metrics.WatchLog(log)
	logger = metrics.Events.Watch(logger)
	r := &keeper{metrics: metrics, logger: logger, drainTimeout: s.Server.DrainTimeout, defaults: s.Defaults, allow: s.TLS.allow, grpcGo: s.Server.Transport == "grpc-go", waiting: parts{}}
	var state *stateFile
	counters := limiter.Options{Bytes: s.CounterMemory}
	if counters.Key, err = s.Store.identityKey(); err != nil {
		return err
	}
	if r.table, state, err = s.State.open(counters, metrics, logger); err != nil {
		return fmt.Errorf("--counter-memory: %w", err)
	}
	process.BoundMemory(r.table.Stats().Bytes, r.logger)
	r.metrics.WatchTable(func() telemetry.TableStats { return tableStats(r.table) })
	shared, err := s.Store.open(r.table, metrics, r.logger)
	if err != nil {
		return err
	}
	r.shared = shared
	settings := s.settings()
	if r.tables, err = s.Tables.registry(); err != nil {
		return err
	}
	r.tables.OnRelease(r.retry)
	settings.Tables, settings.TableMetrics = r.tables, r.measureTables()
	if err := s.Store.use(shared, &settings); err != nil {
		return err
	}
	r.service = answer.NewService(settings, r.table, r.metrics)
	group, ctx := errgroup.WithContext(ctx)
	needed, stop := context.WithCancel(context.WithoutCancel(ctx)) // the drain needs the store
	group.Go(func() error {
		defer stop()
		return s.serve(ctx, group, r, state)
	})
	if shared != nil {
		group.Go(until(needed, shared.Run))
	}
	return endWithin(ctx, s.Server.DrainDelay+s.Server.DrainTimeout+endingSlack, group.Wait)
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

// serve answers from the rules that r gets. What runs beside it runs in group.
func (s *serveCmd) serve(ctx context.Context, group *errgroup.Group, r *keeper, state *stateFile) error {
	closeTables, err := s.openJournals(r)
	defer closeTables()
	if err != nil {
		return err
	}
	follow := s.followFiles
	if s.XDS.Target != "" {
		follow = s.followServer
	}
	if err := follow(ctx, group, r); err != nil || ctx.Err() != nil {
		return err
	}
	stopStatsd, err := s.Statsd.start(ctx, r.metrics, r.logger)
	if err != nil {
		return err
	}
	defer stopStatsd()
	options := s.Server
	options.Optional = s.environment.Unasked("http-addr", "debug-addr", "metrics-addr")
	limits := &options.Limits
	limits.MaxConnections, limits.MaxHTTPConnections = process.Connections(limits.MaxConnections, limits.MaxHTTPConnections, r.logger)
	if options.TLS, err = s.TLS.server(r.metrics, r.logger); err != nil {
		return err
	}
	if err := s.Debug.secure(ctx, group, &options, r.metrics, r.logger); err != nil {
		return err
	}
	tracing, stopTracing, err := s.Tracing.start(ctx, r.metrics, r.logger)
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	defer stopTracing()
	options.Tracing = tracing
	if r.shared != nil {
		options.Roles = r.shared
		options.Name, _ = os.Hostname() // it is for people
	}
	if r.shared != nil {
		if s.Store.await(ctx, group, r.shared.Await, r.logger); ctx.Err() != nil {
			return nil
		}
	}
	srv := server.New(options, r.service, r.logger)
	if err := srv.Listen(ctx); err != nil {
		return err
	}
	if options.TLS != nil {
		group.Go(until(ctx, options.TLS.Run))
	}
	defer state.start(ctx)()
	return srv.Run(ctx)
}

// compileOptions say how rules compile, wherever they come from.
func (s *serveCmd) compileOptions(r *keeper) descriptors.Options {
	return descriptors.Options{
		MergeDomains:   s.MergeDomains,
		AllOrNothing:   s.AllOrNothing,
		CalendarMonths: s.CalendarMonths,
		HashKey:        r.table.Key(),
		Tables:         r.tables,
		TablesLater:    true,
		RatelimitNames: s.Store.URL != "" && s.Store.Names == ratelimitNames,
	}
}

// followFiles takes the rules from files, now and whenever they change.
func (s *serveCmd) followFiles(ctx context.Context, group *errgroup.Group, r *keeper) error {
	return s.follow(ctx, group, r, source.NewFiles(source.Options{
		Paths:       s.Config,
		Prefix:      s.ConfigPrefix,
		Defaults:    s.Defaults,
		AllowEmpty:  s.AllowEmpty,
		StartEmpty:  s.StartEmpty,
		Options:     s.compileOptions(r),
		OnUnwatched: r.unwatched,
	}))
}

// followServer takes the rules from a management server. It returns at the end of
// ctx, or when the first rules are there; before, with --start-without-rules.
func (s *serveCmd) followServer(ctx context.Context, group *errgroup.Group, r *keeper) error {
	if err := s.follow(ctx, group, r, nil); err != nil { // the files of tables
		return err
	}
	x, err := s.XDS.newXDS(r, s.compileOptions(r))
	if err != nil {
		return err
	}
	x.start(ctx, group, s.Defaults)
	if s.XDS.StartWithout {
		return nil
	}
	if err := x.await(ctx); err != nil && s.OnBadStart == "exit" {
		return fmt.Errorf("%w\n(--on-bad-start=serve starts without rules and waits for good ones)", err)
	}
	return nil
}

// settings returns the flags for requests with what other flags say of them.
func (s *serveCmd) settings() answer.Settings {
	settings := s.Settings
	settings.Allow, settings.Clock, settings.Bounds.MessageBytes = s.TLS.allow, clock.New(), s.Server.Limits.MaxMessageBytes
	return settings
}
