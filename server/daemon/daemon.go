package daemon

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/ruleset"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Options configures a [Daemon].
type Options struct {
	Metrics *telemetry.Metrics
	Logger  *zap.Logger
	// Counters configures the table of counters, State the file that it is saved to.
	Counters limiter.Options
	State    StateOptions
	// Tables are the tables of limits that rules may name.
	Tables *tables.Registry
	// Store configures the shared store; nil counts in memory. New sets Table, Steady, Observer,
	// Log and Panicked.
	Store *store.Options
	// StoreStartTimeout is how long the start waits for the first reply of the store. 0 means
	// [DefaultStoreStartTimeout].
	StoreStartTimeout time.Duration
	// ShutdownTimeout is the maximum time from the end of the context of Run until Run returns. 0
	// means no bound.
	ShutdownTimeout time.Duration
	// Settings are those of the service. New sets Tables, TableMetrics and Decider. Namer is
	// required with a Store.
	Settings answer.Settings
	// Rules configures the activation of rules. The caller sets DefaultsFile, AllowEmptyTables,
	// ExitOnBadStart, Allow, DrainTimeout and GRPCGo; New sets the other fields.
	Rules ruleset.Options
}

// Daemon is a sluice. Its fields are the parts that exist before rules are loaded; they must not be
// changed.
type Daemon struct {
	Metrics *telemetry.Metrics
	Logger  *zap.Logger
	Table   *limiter.Table
	Tables  *tables.Registry
	Store   *store.Store // nil if the counters are in memory
	Service *answer.Service
	Loader  *ruleset.Loader

	state           *stateFile // nil for none
	startTimeout    time.Duration
	shutdownTimeout time.Duration
	fallback        store.Fallback
}

// New returns a daemon, with the counters of the state file if there is one. The caller must call
// Run.
func New(o Options) (_ *Daemon, err error) {
	d := &Daemon{
		Metrics: o.Metrics, Logger: o.Logger, Tables: o.Tables, startTimeout: o.StoreStartTimeout, shutdownTimeout: o.ShutdownTimeout,
	}
	if d.startTimeout == 0 {
		d.startTimeout = DefaultStoreStartTimeout
	}
	defer func() {
		if err != nil {
			d.state.release()
		}
	}()
	if d.Table, d.state, err = o.State.openTable(o.Counters, d.Metrics, d.Logger); err != nil {
		return nil, err
	}
	d.Metrics.WatchTable(d.tableStats)
	settings := o.Settings
	if o.Store != nil {
		options := *o.Store
		options.Steady = o.Settings.Clock
		d.fallback = options.Fallback
		if d.Store, err = openStore(options, d.Table, d.Metrics, d.Logger); err != nil {
			return nil, err
		}
		settings.Decider = d.Store
		switch {
		case options.PerSecond != nil:
			settings.NoChoices = `--store-per-second, since limits of a choice can be in different stores; remove the flag, or "charge"`
		case options.Server.Nodes != nil:
			settings.NoChoices = `a cluster, since limits of a choice are on different nodes; use one primary, or remove "charge"`
		}
	}
	settings.Tables = d.Tables
	settings.TableMetrics = ruleset.NewTableMetrics(d.Metrics, d.Tables)
	d.Service = answer.NewService(settings, d.Table, d.Metrics)
	rules := o.Rules
	rules.Service = d.Service
	rules.Tables = d.Tables
	rules.TableMetrics = settings.TableMetrics
	rules.Metrics = d.Metrics
	rules.Logger = d.Logger
	rules.Now = now
	rules.SharedStore = d.Store != nil
	d.Loader = ruleset.New(rules)
	return d, nil
}

// Steps are the steps of [Daemon.Run] that belong to its caller. Their goroutines run in group,
// until ctx ends.
type Steps struct {
	// OpenTables opens the tables that are not files. Run calls cleanup at the end, also after an
	// error. Optional.
	OpenTables func() (cleanup func(), err error)
	// FollowRules loads the rules, and follows their source. If it returns an error, or ctx has
	// ended, Run returns.
	FollowRules func(ctx context.Context, group *errgroup.Group) error
	// ConfigureServer returns the options of the server, after rules have loaded. Run calls cleanup
	// at the end, also after an error, unless it is nil.
	ConfigureServer func(ctx context.Context, group *errgroup.Group) (o server.Options, cleanup func(), err error)
}

// Run loads rules and answers requests until ctx ends. Then it drains. It returns an error if a step
// or a listener fails, or if draining takes longer than [Options].ShutdownTimeout.
func (d *Daemon) Run(ctx context.Context, steps Steps) error {
	group, ctx := errgroup.WithContext(ctx)
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx)) // draining needs the store
	group.Go(func() error {
		defer stopStore()
		return d.serve(ctx, group, steps)
	})
	if d.Store != nil {
		group.Go(Task(storeCtx, d.Store.Run))
	}
	if d.shutdownTimeout == 0 {
		return group.Wait()
	}
	return waitForShutdown(ctx, d.shutdownTimeout, group.Wait)
}

func (d *Daemon) serve(ctx context.Context, group *errgroup.Group, steps Steps) error {
	defer d.state.release()
	if steps.OpenTables != nil {
		closeTables, err := steps.OpenTables()
		defer closeTables()
		if err != nil {
			return err
		}
	}
	if err := steps.FollowRules(ctx, group); err != nil || ctx.Err() != nil {
		return err
	}
	options, cleanup, err := steps.ConfigureServer(ctx, group)
	if cleanup != nil {
		defer cleanup()
	}
	if err != nil {
		return err
	}
	if d.Store != nil {
		options.Elector = d.Store
		if err := d.awaitStore(ctx, group, d.Store); err != nil || ctx.Err() != nil {
			return err
		}
	}
	srv := server.New(options, d.Service, d.Logger)
	if err := srv.Listen(ctx); err != nil {
		return err
	}
	if options.TLS != nil {
		group.Go(Task(ctx, options.TLS.Run))
	}
	defer d.state.start(ctx)()
	return srv.Run(ctx)
}

// waitForShutdown returns the result of wait, or an error if wait has not returned within bound
// after ctx ended. Goroutines may be blocked, for example by a file system that does not respond,
// and the process must exit all the same.
func waitForShutdown(ctx context.Context, bound time.Duration, wait func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("shutdown timed out after %v; exiting with tasks still running", bound)
	}
}

// Task adapts run, which returns when ctx ends and cannot fail, to an errgroup.
func Task(ctx context.Context, run func(context.Context)) func() error {
	return func() error {
		run(ctx)
		return nil
	}
}

func (d *Daemon) tableStats() telemetry.TableStats {
	totals := d.Table.Stats()
	out := telemetry.TableStats{Bytes: totals.Bytes, Used: totals.Used, Reclaimed: totals.Reclaimed}
	for _, c := range d.Table.Classes(now()) {
		out.Classes = append(out.Classes, telemetry.ClassStats{
			Domain: descriptors.MetricDomain(c.Partition), CounterBytes: c.CounterBytes,
			Capacity: c.Capacity, Live: c.Live, Evicted: c.Evicted,
		})
	}
	return out
}

// now returns the wall-clock time. The time of a request is read where it arrives.
func now() limiter.Time { return limiter.Time(time.Now().UnixNano()) }
