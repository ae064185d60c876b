package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/daemon"
	"github.com/sluice-ratelimit/sluice/server/ruleset"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// replica is a sluice, which can be killed and restarted.
type replica struct {
	world *world
	host  string

	operations turn         // guards the fields below
	clockError atomic.Int64 // nanoseconds that its clock is ahead
	*process                // the current one, or the last
	running    bool
	restarts   int
}

// process is a process of a sluice. A killed one goes on running, but without the network and
// without its state file, so it has no effect.
type process struct {
	daemon *daemon.Daemon
	host   string
	until  time.Time // when it was stopped or killed; zero while it runs
	cancel context.CancelFunc
	killed atomic.Bool
	orders *orders
	ended  chan struct{} // closed when Run has returned

	started     time.Time
	changed     *orderKind // whose rule is changed or removed; nil for none
	maxCounters int        // of [domain]; 0 for none
}

const grpcPort, debugPort, metricsPort = ":8081", ":6070", ":9090"

const drainTimeout = 5 * time.Second

// start runs a new process.
func (r *replica) start() {
	w := r.world
	metrics := mustHave(telemetry.New(telemetry.Options{}))
	o := newDaemonOptions(metrics, func() (limiter.Time, time.Time) {
		now := time.Now()
		return limiter.Time(now.UnixNano() + r.clockError.Load()), now
	})
	o.Logger = r.newLogger(metrics.Events)
	if w.stateFiles {
		o.State = daemon.StateOptions{File: r.stateFile(), Interval: 5 * time.Second}
	}
	_ = mustHave(o.Tables.Add(table, ""))
	p := &process{host: r.host, started: time.Now(), ended: make(chan struct{}), orders: w.orders, maxCounters: w.maxCounters}
	if r.process != nil {
		p.maxCounters = r.maxCounters
	}
	if w.store != nil {
		o.Store = w.store.options(w.scenario, func(ctx context.Context, _, to string) (net.Conn, error) {
			if p.killed.Load() {
				return nil, net.ErrClosed
			}
			return w.network.dial(ctx, r.host, to)
		}, r.host)
		o.Settings.Namer = descriptors.NewNamer("", nil)
	}
	p.daemon = mustHave(daemon.New(o))
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	r.process, r.running = p, true
	w.orders.putRow(p)
	w.processes = append(w.processes, p)
	go func() {
		defer close(p.ended)
		if err := p.daemon.Run(ctx, daemon.Steps{
			FollowRules: func(context.Context, *errgroup.Group) error { return p.load(w.rules + w.moreRules()) },
			ConfigureServer: func(context.Context, *errgroup.Group) (server.Options, func(), error) {
				return w.network.serverOptions(r.host), nil, nil
			},
		}); err != nil && !p.killed.Load() {
			w.fail("%s ended with an error: %v", r.host, err)
		}
	}()
}

// newDaemonOptions returns options for a sluice whose clock is now, which also returns the time without
// errors of that clock.
func newDaemonOptions(metrics *telemetry.Metrics, now func() (limiter.Time, time.Time)) daemon.Options {
	base := time.Now()
	return daemon.Options{
		Metrics: metrics, Counters: limiter.Options{Bytes: 1 << 20}, Tables: new(tables.Registry), ShutdownTimeout: time.Minute,
		Rules: ruleset.Options{DrainTimeout: 5 * time.Second},
		Settings: answer.Settings{
			NearLimitRatio: 0.8, LeaseGrace: time.Second, TopKeys: "hashed", Bounds: servertest.Bounds(answer.Bounds{}),
			Clock: clock.FromFunc(func() (limiter.Time, time.Duration) {
				wall, steady := now()
				return wall, steady.Sub(base)
			}),
		},
	}
}

// stateFile returns the path of the state file of the next process.
func (r *replica) stateFile() string { return fmt.Sprint(r.world.dir, "/", r.host, "-", r.restarts) }

// load activates rules.
func (p *process) load(text string) error {
	if p.maxCounters > 0 {
		text = fmt.Sprintf("max_counters: %d\n%s", p.maxCounters, text)
	}
	return loadRules(p.daemon, text+"---\n"+p.orders.rules(p.changed))
}

// loadRules activates the rules of a file.
func loadRules(d *daemon.Daemon, text string) error {
	configs, ds := rulefile.Parse("rules.yaml", []byte(text))
	panicOn(ds.Err())
	set, ds := descriptors.Compile(configs, descriptors.Options{HashKey: d.Table.Key(), Tables: d.Tables, TablesLater: true})
	panicOn(ds.Err())
	return d.Loader.LoadRules(source.Update{Set: set})
}

// serverOptions returns options for a sluice that listens on a host.
func (n *network) serverOptions(host string) server.Options {
	return server.Options{
		GRPCAddr: host + grpcPort, DebugAddr: host + debugPort, MetricsAddr: host + metricsPort, MetricsPath: "/metrics", Name: host,
		OpenListener: func(_ context.Context, addr string, _ fs.FileMode) (net.Listener, error) { return n.listen(addr) },
		Limits:       servertest.Limits(transport.Limits{}), StatusCodes: "precise", DrainTimeout: drainTimeout,
	}
}

// requestHTTP makes a request from a host on a new connection.
func (n *network) requestHTTP(ctx context.Context, from, to, method, path string) (status int, body []byte, err error) {
	request := mustHave(http.NewRequestWithContext(ctx, method, "http://localhost"+path, http.NoBody))
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return n.dial(ctx, from, to)
	}}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	reply, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer reply.Body.Close()
	body, err = io.ReadAll(reply.Body)
	return reply.StatusCode, body, err
}

// reload activates other rules.
func (r *replica) reload(text string) {
	began := time.Now()
	if err := r.load(text + r.world.moreRules()); err != nil {
		r.world.fail("%s rejects rules: %v", r.host, err)
	}
	if took := time.Since(began); took > maxReload {
		r.world.fail("a reload of %s took %v", r.host, took)
	}
}

// stop sends SIGTERM and waits for the end.
func (r *replica) stop() {
	began := time.Now()
	r.cancel()
	<-r.ended
	r.running, r.until = false, time.Now()
	if took := time.Since(began); took > maxDrain {
		r.world.fail("the shutdown of %s took %v", r.host, took)
	}
}

// kill ends the process at once: its connections are reset, and neither the store nor its state
// file changes any more.
func (r *replica) kill() {
	state, err := os.ReadFile(r.stateFile())
	r.restarts++
	if !errors.Is(err, fs.ErrNotExist) {
		panicOn(errors.Join(err, os.WriteFile(r.stateFile(), state, 0o600)))
	}
	r.killed.Store(true)
	r.world.network.close(r.host)
	r.cancel()
	r.running, r.until = false, time.Now()
}

// eventWriter adds the log of a replica to the trace.
type eventWriter struct{ replica *replica }

func (w eventWriter) Write(line []byte) (int, error) {
	w.replica.world.record(w.replica.host, "log %s", bytes.TrimSpace(line))
	return len(line), nil
}

func (r *replica) newLogger(events *telemetry.Events) *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{LevelKey: "level", MessageKey: "event", EncodeLevel: zapcore.LowercaseLevelEncoder})
	logger := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(eventWriter{r}), zap.WarnLevel))
	return events.Watch(logger).WithOptions(zap.Hooks(func(e zapcore.Entry) error {
		if e.Level > zap.ErrorLevel || e.Message == "panic" {
			r.world.fail("%s logged %s", r.host, e.Message)
		}
		return nil
	}))
}
