package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/daemon"
	"github.com/sluice-ratelimit/sluice/server/ruleset"
	"github.com/sluice-ratelimit/sluice/telemetry"
	"github.com/sluice-ratelimit/sluice/xds"
)

// xdsFlags configures the management server that rules come from.
type xdsFlags struct {
	xds.Options `embed:""`

	StartWithout bool     `name:"start-without-rules" help:"Listen before the first rules arrive, and answer requests with an error until then. Default: wait for the rules."`
	Header       []string `name:"xds-header" sep:"none" placeholder:"NAME=VALUE" help:"Header to send to the management server. May be repeated."`
	TLS          bool     `name:"xds-tls" help:"Use TLS."`
	CA           string   `name:"xds-ca" placeholder:"FILE" help:"CA certificates (PEM) that verify the certificate of the server. Default: those of the system."`
	SAN          string   `name:"xds-san" placeholder:"NAME" help:"DNS name or IP address that the certificate of the server must contain. Default: the host of --xds-addr."`
	Cert         string   `name:"xds-cert" placeholder:"FILE" help:"Client certificate (PEM)."`
	Key          string   `name:"xds-key" placeholder:"FILE" help:"Private key of --xds-cert."`
}

func (f *xdsFlags) check(configGiven bool) (err error) {
	if f.Target == "" {
		return nil
	}
	switch {
	case configGiven:
		return errors.New("--xds-addr and --config are mutually exclusive: rules come from a server or from files")
	case !f.TLS && (f.CA != "" || f.SAN != "" || f.Cert != "" || f.Key != ""):
		return errors.New("--xds-ca, --xds-san, --xds-cert and --xds-key require --xds-tls")
	case (f.Cert == "") != (f.Key == ""):
		return errors.New("--xds-cert and --xds-key must be set together")
	case !(f.Backoff.Factor > 0 && f.Backoff.Factor <= 1000):
		return fmt.Errorf("XDS_CLIENT_BACKOFF_RANDOM_FACTOR is %v: must be above 0 and at most 1000", f.Backoff.Factor)
	}
	f.Headers = map[string][]string{}
	for _, h := range f.Header {
		name, value, ok := strings.Cut(h, "=")
		name = strings.ToLower(name)
		printable := !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
		if !ok || !telemetry.IsHeaderName(name) || strings.HasPrefix(name, "grpc-") || !printable {
			// The value may be a secret.
			return fmt.Errorf("--xds-header %q: must be NAME=VALUE with a name that does not start with grpc- and a value of printable ASCII", name)
		}
		f.Headers[name] = append(f.Headers[name], value)
	}
	return nil
}

// xdsClient gets rules from a management server.
type xdsClient struct {
	addr   string
	loader *ruleset.Loader
	logger *zap.Logger
	source *xds.Source
	tls    *access.TLS // nil for plain text
	// first receives whether the first rules have loaded.
	first chan bool
}

// newClient returns a client whose rules the loader of d activates.
func (f *xdsFlags) newClient(d *daemon.Daemon, opt descriptors.Options) (_ *xdsClient, err error) {
	x := &xdsClient{addr: f.Target, loader: d.Loader, logger: d.Logger, first: make(chan bool, 1)}
	metrics := d.Metrics.XDS()
	log := &xdsLog{logger: d.Logger.With(zap.String("xds_addr", f.Target)), metrics: metrics}
	o := f.Options
	o.Rules = opt
	o.OnLoad = d.Loader.LoadRules
	o.OnConnected = log.connected
	o.OnDisconnected = log.disconnected
	o.OnAnswered = func(ack bool) {
		if ack {
			metrics.ACKs.Inc()
		} else {
			metrics.NACKs.Inc()
		}
		x.reportFirst(ack)
	}
	rare := telemetry.Rare(d.Logger)
	o.OnIgnored = func(typeURL string) {
		rare.Warn("the management server sent a type that sluice did not ask for", zap.String("type", typeURL))
	}
	if f.TLS {
		x.tls, err = access.ClientTLS(access.TLSOptions{
			Cert: f.Cert, Key: f.Key, CA: f.CA, PeerName: f.SAN,
			Use: "xds", Metrics: d.Metrics.TLS("xds"), Logger: d.Logger,
		})
		if err != nil {
			return nil, flagError(err, "--xds-cert", f.Cert, "--xds-key", f.Key, "--xds-ca", f.CA)
		}
		o.Credentials = x.tls
	}
	if x.source, err = xds.NewSource(o); err != nil {
		return nil, fmt.Errorf("--xds-addr: %w", err)
	}
	return x, nil
}

// start follows the server, and the file of defaults unless its name is empty, in group until ctx
// ends. It connects to the server once the defaults have loaded.
func (x *xdsClient) start(ctx context.Context, group *errgroup.Group, defaults string) {
	if x.tls != nil {
		group.Go(daemon.Task(ctx, x.tls.Run))
	}
	ready := make(chan struct{})
	if defaults == "" {
		close(ready)
	} else {
		x.followDefaults(ctx, group, defaults, sync.OnceFunc(func() { close(ready) }))
	}
	group.Go(daemon.Task(ctx, func(ctx context.Context) {
		select {
		case <-ready:
			x.source.Run(ctx)
		case <-ctx.Done():
		}
	}))
}

// followDefaults compiles the rules with a file of defaults, and again whenever the file changes.
// Good is called each time the file has loaded.
func (x *xdsClient) followDefaults(ctx context.Context, group *errgroup.Group, file string, good func()) {
	load := func(u source.Update) error {
		x.loader.LogDiagnostics(u.Diagnostics)
		if u.Err != nil {
			x.loader.ReportRejected(file, u.Err)
			x.reportFirst(false)
			return u.Err
		}
		x.logger.Info("defaults loaded", zap.String("file", file),
			telemetry.Clear(file, telemetry.RulesMissing, telemetry.RulesRejected))
		again := *u.Defaults // a new pointer: the rules are compiled even if the defaults are as before
		x.source.SetDefaults(&again)
		good()
		return nil
	}
	files := source.NewFiles(source.Options{
		Defaults: file, OnLoad: load,
	})
	_ = files.Load() // load reports the error
	group.Go(daemon.Task(ctx, files.Run))
}

// reportFirst passes the first outcome to awaitFirst.
func (x *xdsClient) reportFirst(good bool) {
	select {
	case x.first <- good:
	default:
	}
}

// awaitFirst waits for the first rules, or the end of ctx. It returns an error if they fail to
// load; the reasons have been logged.
func (x *xdsClient) awaitFirst(ctx context.Context) error {
	x.logger.Info("waiting for the first rules before listening (--start-without-rules does not wait)",
		zap.String("xds_addr", x.addr))
	select {
	case good := <-x.first:
		if !good {
			return fmt.Errorf("the first rules of %s failed to load, for the reasons above", x.addr)
		}
	case <-ctx.Done():
	}
	return nil
}

// xdsLog logs and counts events of the connection.
type xdsLog struct {
	logger  *zap.Logger
	metrics *telemetry.XDS
	// lastError is the error of the last attempts, empty after a success.
	lastError string
}

func (l *xdsLog) connected() {
	l.metrics.Connected.Set(1)
	l.logger.Info("connected to the management server", telemetry.Clear("", telemetry.ManagementServerUnavailable))
	l.lastError = ""
}

// disconnected logs the first of consecutive equal errors, because a server may be unavailable for
// hours.
func (l *xdsLog) disconnected(err error, retry time.Duration) {
	l.metrics.Connected.Set(0)
	if errors.Is(err, xds.ErrTooLarge) {
		err = fmt.Errorf("%w; raise XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", err)
	}
	about := []zap.Field{zap.Error(err), zap.Duration("retry_in", retry.Round(time.Millisecond))}
	if text := err.Error(); text != l.lastError {
		l.lastError = text
		telemetry.Raise(l.logger, telemetry.ManagementServerUnavailable, "", about...)
		return
	}
	l.logger.Debug("still not connected to the management server", about...)
}
