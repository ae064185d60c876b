package simulation

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/daemon"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// replica is a sluice, which can be killed and restarted.
type replica struct {
	world *world
	host  string

	daemon *daemon.Daemon // nil while it does not run
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned
}

const grpcPort, debugPort = ":8081", ":6070"

// start runs a new process.
func (r *replica) start() {
	w := r.world
	metrics, err := telemetry.New(telemetry.Options{})
	if err != nil {
		panic(err)
	}
	w.quotas.started(r.host, metrics)
	o := daemon.Options{
		Metrics: metrics, Logger: metrics.Events.Watch(zap.New(&eventCore{LevelEnabler: zap.WarnLevel, world: w, host: r.host})),
		Counters: limiter.Options{Bytes: 1 << 20}, Tables: new(tables.Registry), ShutdownTimeout: time.Minute,
		Settings: answer.Settings{
			NearLimitRatio: 0.8, LeaseGrace: time.Second, TopKeys: "hashed", Bounds: servertest.Bounds(answer.Bounds{}),
		},
	}
	if w.stateFiles {
		o.State = daemon.StateOptions{File: w.dir + "/" + r.host, Interval: 5 * time.Second}
	}
	if w.store != nil {
		o.Store = w.store.options(r.host, w.scenario)
		o.Settings.Namer = descriptors.NewNamer("", nil)
	}
	if r.daemon, err = daemon.New(o); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan struct{})
	d, ended := r.daemon, r.ended
	go func() {
		defer close(ended)
		if err := d.Run(ctx, daemon.Steps{FollowRules: r.loadFirst, ConfigureServer: r.configure}); err != nil {
			w.fail("%s ended with an error: %v", r.host, err)
		}
	}()
}

func (r *replica) loadFirst(context.Context, *errgroup.Group) error {
	r.load(r.world.rules)
	return nil
}

// load activates rules, and those of the quota service.
func (r *replica) load(text string) {
	configs, ds := rulefile.Parse("rules.yaml", []byte(text+r.world.quotas.rules()))
	if err := ds.Err(); err != nil {
		panic(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{HashKey: r.daemon.Table.Key(), Tables: r.daemon.Tables, TablesLater: true})
	if err := ds.Err(); err != nil {
		panic(err)
	}
	if err := r.daemon.Loader.LoadRules(source.Update{Set: set}); err != nil {
		r.world.fail("%s rejected rules: %v", r.host, err)
	}
}

// reload activates the rules again, which may have changed.
func (r *replica) reload() {
	if r.daemon != nil {
		r.load(r.world.rules)
	}
}

func (r *replica) configure(context.Context, *errgroup.Group) (server.Options, func(), error) {
	return server.Options{
		GRPCAddr: r.host + grpcPort, DebugAddr: r.host + debugPort, Name: r.host,
		OpenListener: func(_ context.Context, addr string, _ fs.FileMode) (net.Listener, error) {
			return r.world.network.listen(addr)
		},
		Limits: servertest.Limits(transport.Limits{}), StatusCodes: "precise", DrainTimeout: 5 * time.Second,
	}, nil, nil
}

// stop sends SIGTERM and waits for the end.
func (r *replica) stop() {
	r.cancel()
	<-r.ended
	r.daemon = nil
}

// options returns the options of the store's client at a host.
func (s *storeHost) options(host string, c *scenario) *store.Options {
	return &store.Options{
		Server: redis.Server{Network: "tcp", Address: storeAddress, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return s.network.dial(ctx, host, address)
		}},
		Timeout: c.storeTimeout, DialTimeout: time.Second, Fallback: c.fallback, Jitter: -1,
		Spread: func(mean time.Duration) time.Duration { return mean + s.network.latencyOf(host+" spread") },
	}
}

// eventCore adds the log of a replica to the trace.
type eventCore struct {
	zapcore.LevelEnabler

	world *world
	host  string
}

func (c *eventCore) With([]zapcore.Field) zapcore.Core { return c }
func (c *eventCore) Sync() error                       { return nil }

func (c *eventCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *eventCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	text := e.Message
	if i := slices.IndexFunc(fields, func(f zapcore.Field) bool { return f.Type == zapcore.ErrorType }); i >= 0 {
		text = fmt.Sprint(text, ": ", fields[i].Interface)
	}
	c.world.record(c.host, "log %v %s", e.Level, text)
	if e.Level > zap.ErrorLevel || e.Message == "panic" {
		c.world.fail("%s logged %s", c.host, text)
	}
	return nil
}
