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
	"github.com/sluice-ratelimit/sluice/server/daemon"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/ruleset"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// serveCmd has the flags of serve. Environment variables set the flags that the command line does
// not.
type serveCmd struct {
	environment *environment.Environment

	HelpAll helpAllFlag `name:"help-all" help:"Show the help of all flags."`

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

	Server   server.Options      `embed:""`
	Settings answer.Settings     `embed:""`
	TLS      tlsFlags            `embed:"" group:"tls"`
	Debug    debugFlags          `embed:"" group:"debug"`
	Store    storeFlags          `embed:"" group:"store"`
	XDS      xdsFlags            `embed:"" group:"xds"`
	Statsd   statsdFlags         `embed:"" group:"statsd"`
	Tracing  tracingFlags        `embed:"" group:"tracing"`
	State    daemon.StateOptions `embed:"" group:"state"`

	CounterMemory            int64  `group:"bounds" type:"size" default:"64MiB" placeholder:"SIZE" help:"Memory for counters, outside the Go heap. If it is full, counters are evicted, and limits may admit more."`
	ResponseTimeMilliseconds bool   `name:"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS" hidden:"" help:"Report ratelimit_service_response_time_seconds in milliseconds, despite its name, for dashboards that expect them."`
	LogLevel                 string `group:"process" default:"info" placeholder:"LEVEL" help:"Minimum level of log lines: debug, info, warn or error."`
	LogFormat                string `group:"process" default:"text" placeholder:"text|json" help:"Log format: text or json."`
}

// hiddenFlags is not empty in programs that tests build or run, which may set hidden flags: the
// constants, and the variables without a flag.
var hiddenFlags string

// BeforeResolve adds the environment as a source of flags.
func (s *serveCmd) BeforeResolve(ctx *kong.Context) (err error) {
	for _, path := range ctx.Path {
		if path.Flag != nil && path.Flag.Hidden && hiddenFlags == "" {
			return fmt.Errorf("unknown flag --%s", path.Flag.Name)
		}
	}
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
	metrics, err := telemetry.New(telemetry.Options{
		Tags: s.Statsd.Tags, Milliseconds: s.ResponseTimeMilliseconds, Build: currentBuild(), Started: time.Now().UTC(),
	})
	if err != nil {
		return err
	}
	metrics.WatchLog(log)
	d, err := s.newDaemon(metrics, metrics.Events.Watch(logger))
	if err != nil {
		return err
	}
	return d.Run(ctx, daemon.Steps{
		OpenTables: func() (func(), error) { return s.openJournals(d.Loader) },
		FollowRules: func(ctx context.Context, group *errgroup.Group) error {
			if s.XDS.Target != "" {
				return s.followServer(ctx, group, d)
			}
			return s.followFiles(ctx, group, d)
		},
		ConfigureServer: func(ctx context.Context, group *errgroup.Group) (server.Options, func(), error) {
			return s.configureServer(ctx, group, d)
		},
	})
}

// newDaemon returns a daemon with the settings of the flags.
func (s *serveCmd) newDaemon(metrics *telemetry.Metrics, logger *zap.Logger) (*daemon.Daemon, error) {
	o := daemon.Options{
		Metrics: metrics, Logger: logger, Counters: limiter.Options{Bytes: s.CounterMemory}, State: s.State,
		StoreStartTimeout: storeStartTimeout, Settings: s.settings(), ShutdownTimeout: s.Server.DrainDelay + s.Server.DrainTimeout + shutdownMargin,
		Rules: ruleset.Options{
			DefaultsFile: s.Defaults, AllowEmptyTables: s.AllowEmptyTables, ExitOnBadStart: s.OnBadStart == "exit",
			Allow: s.TLS.allow, DrainTimeout: s.Server.DrainTimeout, GRPCGo: s.Server.Transport == "grpc-go",
		},
	}
	var err error
	if o.Counters.Key, err = s.Store.identityKey(); err != nil {
		return nil, err
	}
	if o.Tables, err = s.Tables.registry(); err != nil {
		return nil, err
	}
	if o.Store, err = s.Store.options(logger); err != nil {
		return nil, err
	}
	if o.Settings.Namer, err = s.Store.namer(); err != nil {
		return nil, err
	}
	d, err := daemon.New(o)
	if err != nil {
		return nil, err
	}
	process.SetMemoryLimit(d.Table.Stats().Bytes, logger)
	return d, nil
}

// newQuotas creates the rate limit quota service; nil in a program without it. Set by quotas.go.
var newQuotas func(quota.Options) quota.Service

// configureServer returns the options of the server, and starts what belongs to them: statsd, TLS,
// the tokens of operators, and tracing.
func (s *serveCmd) configureServer(
	ctx context.Context, group *errgroup.Group, d *daemon.Daemon,
) (options server.Options, cleanup func(), err error) {
	stopStatsd, err := s.Statsd.start(ctx, d.Metrics, d.Logger)
	if err != nil {
		return options, nil, err
	}
	options = s.Server
	options.NewQuotas = newQuotas
	options.Optional = s.environment.OptionalListeners()
	limits := &options.Limits
	limits.MaxConnections, limits.MaxHTTPConnections = process.ConnectionLimits(limits.MaxConnections,
		limits.MaxHTTPConnections, d.Logger)
	if options.TLS, err = s.TLS.serverTLS(d.Metrics, d.Logger); err != nil {
		return options, stopStatsd, err
	}
	if err := s.Debug.configureTLS(ctx, group, &options, d.Metrics, d.Logger); err != nil {
		return options, stopStatsd, err
	}
	tracing, stopTracing, err := s.Tracing.start(ctx, d.Metrics, d.Logger)
	if err != nil {
		return options, stopStatsd, fmt.Errorf("tracing: %w", err)
	}
	options.Tracing = tracing
	if d.Store != nil {
		options.Name, _ = os.Hostname() // only for display
		if s.Store.Names == ratelimitNames {
			group.Go(daemon.Task(ctx, d.WatchClocks))
		}
	}
	return options, func() {
		stopTracing()
		stopStatsd()
	}, nil
}

// compileOptions returns the options for compiling rules of any source.
func (s *serveCmd) compileOptions(d *daemon.Daemon) descriptors.Options {
	return descriptors.Options{
		MergeDomains:   s.MergeDomains,
		AllOrNothing:   s.AllOrNothing,
		CalendarMonths: s.CalendarMonths,
		HashKey:        d.Table.Key(),
		Tables:         d.Tables,
		TablesLater:    true,
		RatelimitNames: s.Store.URL != "" && s.Store.Names == ratelimitNames,
	}
}

// followFiles loads the rules from files, and again whenever these change.
func (s *serveCmd) followFiles(ctx context.Context, group *errgroup.Group, d *daemon.Daemon) error {
	return d.Loader.Follow(ctx, group, source.NewFiles(source.Options{
		Paths:      s.Config,
		Prefix:     s.ConfigPrefix,
		Defaults:   s.Defaults,
		AllowEmpty: s.AllowEmpty,
		StartEmpty: s.StartEmpty,
		Options:    s.compileOptions(d),
	}))
}

// followServer loads the rules from a management server. It returns when the first rules have
// arrived or ctx ends; with --start-without-rules it returns immediately.
func (s *serveCmd) followServer(ctx context.Context, group *errgroup.Group, d *daemon.Daemon) error {
	if err := d.Loader.Follow(ctx, group, nil); err != nil { // table files
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
	settings.Allow = s.TLS.allow
	settings.Clock = clock.New()
	settings.Bounds.MessageBytes = s.Server.Limits.MaxMessageBytes
	return settings
}
