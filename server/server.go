package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/builtin"
	"github.com/sluice-ratelimit/sluice/server/transport/grpcgo"
	"github.com/sluice-ratelimit/sluice/server/web"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// defaultSocketMode lets the owner and the group of a socket connect.
const defaultSocketMode fs.FileMode = 0o660

// transportBuiltin is the default of [Options].Transport.
const transportBuiltin = "builtin"

// Server serves all listeners of a sluice.
type Server struct {
	options  Options
	service  *answer.Service
	metrics  *telemetry.Metrics
	logger   *zap.Logger
	health   *healthState
	draining chan struct{} // closed after the drain delay
	sleep    func(time.Duration)
	tokens   *cpu.Tokens
	tracer   stats.Handler // nil without tracing
	quotas   quota.Service // nil without Options.NewQuotas
	admin    *admin.API
	grpc     transport.Transport // nil without a gRPC listener
	grpcConn net.Listener
	json     []*httpListener // serve /json; the others are for operators
	http     []*httpListener
}

type httpListener struct {
	*http.Server
	net.Listener
}

// New returns a server. The caller must call Listen and Run.
func New(options Options, service *answer.Service, logger *zap.Logger) *Server {
	options.Transport = cmp.Or(options.Transport, transportBuiltin)
	s := &Server{
		options: options, service: service, metrics: service.Metrics(), logger: logger,
		draining: make(chan struct{}), sleep: time.Sleep, tokens: cpu.NewTokens(),
	}
	if options.Tracing != nil {
		s.tracer = answer.NewTracer(options.Tracing)
	}
	s.health = newHealthState(s.ready)
	service.OnRulesChanged(s.health.update)
	return s
}

// ready reports whether the rules and the store that health depends on are available.
func (s *Server) ready() bool {
	if s.options.UnhealthyWithoutRules {
		if set := s.service.Rules(); set == nil || len(set.Domains()) == 0 {
			return false
		}
	}
	return !s.options.UnhealthyWithoutStore || s.service.Up()
}

// Listen opens all listeners and logs their addresses. It skips a listener in [Options].Optional
// whose port is in use. If any other listener fails, it closes all and returns the error.
func (s *Server) Listen(ctx context.Context) error {
	secure := s.options.TLS
	creds, err := access.Credentials(secure, s.service.Settings().Allow)
	switch {
	case err != nil:
		return err
	case s.options.JSONAddr != "" && secure == nil:
		return errors.New("json listener: TLS is required")
	case s.options.DebugRights.Configured() && s.options.DebugTLS == nil:
		return errors.New("debug listener: rights require TLS")
	}
	h := answer.NewHandler(s.service, s.logger, s.options.Tracing, s.options.StatusCodes == "precise")
	s.newQuotas(h)
	s.admin = admin.New(h, s.quotas, s.options.DebugRights)
	if s.options.GRPCAddr != "" {
		l, err := s.openListener(ctx, "grpc", s.options.GRPCAddr, s.options.GRPCSocketMode)
		if err != nil {
			s.closeListeners()
			return err
		}
		s.grpcConn = s.limitConnections(l, s.options.Limits.MaxConnections, h,
			s.metrics.SetTransport(s.options.Transport), secure)
		s.grpc = s.transport(h, creds)
	}
	json := s.withTokens(cpu.JSON, newJSONHandler(h, min(web.MaxBody, s.options.Limits.MaxMessageBytes)))
	secured := map[string]http.Handler{"/json": json}
	plain := map[string]http.Handler{"/json": s.plainJSON(json), "/healthcheck": healthcheck(s.health.isHealthy)}
	if s.options.Usage {
		usage := s.withTokens(cpu.JSON, usageHandler{s})
		secured["/usage"] = usage
		plain["/usage"] = usage
		if s.options.JSONAddr != "" || s.service.Settings().Allow != nil {
			plain["/usage"] = onlyOverTLS
		}
	}
	scrapes := s.withTokens(cpu.Scrape, newScrapeHandler(s.metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	for _, l := range []struct {
		name, addr string
		handler    http.Handler
	}{
		{"http", s.options.HTTPAddr, servePaths(plain)},
		{"json", s.options.JSONAddr, servePaths(secured)},
		{"debug", s.options.DebugAddr, s.withTokens(cpu.Operator, s.admin.Handler(profiles))},
		{"metrics", s.options.MetricsAddr, servePaths(map[string]http.Handler{s.options.MetricsPath: scrapes})},
	} {
		if l.addr == "" {
			continue
		}
		conn, err := s.openListener(ctx, l.name, l.addr, defaultSocketMode)
		if remedy, optional := s.options.Optional[l.name]; optional && errors.Is(err, syscall.EADDRINUSE) {
			s.logger.Warn("port already in use; listener disabled",
				zap.String("listener", l.name), zap.String("address_set_by", remedy), zap.Error(err))
			continue
		}
		if err != nil {
			s.closeListeners()
			return err
		}
		if l.name == "debug" && !s.options.DebugRights.Configured() && !web.IsLocalAddress(conn.Addr()) {
			s.logger.Warn("the debug listener has no authentication and is reachable from other machines; counters and state are only available from this machine")
		}
		maxOpen, headerBytes := s.httpBounds(l.name)
		tls := map[string]*access.TLS{"json": secure, "debug": s.options.DebugTLS}[l.name]
		bounded := s.limitConnections(conn, maxOpen, h, nil, tls)
		server := newHTTPServer(recoverPanics(rejectGRPC(l.name, h, l.handler), h.Panics), headerBytes, s.logger)
		bounded.serveOn(server)
		conn = bounded
		if tls != nil {
			conn = tls.Secure(server, conn)
		}
		listener := &httpListener{server, conn}
		if l.name == "http" || l.name == "json" {
			s.json = append(s.json, listener)
		} else {
			s.http = append(s.http, listener)
		}
	}
	return nil
}

// maxOperatorConnections bounds the connections of the debug and metrics listeners.
const maxOperatorConnections = 100

// httpBounds returns the maximum number of connections of a listener, and the maximum size of a
// request header.
func (s *Server) httpBounds(listener string) (connections, headerBytes int) {
	connections = s.options.Limits.MaxHTTPConnections
	headerBytes = maxHTTPHead
	switch listener {
	case "debug":
		// The query of /counters can contain any descriptor. URL encoding takes up to three bytes
		// per byte.
		return min(connections, maxOperatorConnections), headerBytes + 3*web.MaxBody
	case "metrics":
		connections = min(connections, maxOperatorConnections)
	}
	return connections, headerBytes
}

// limitConnections bounds the number of open connections of a listener, and their handshakes. current
// is a gauge of that number, and may be nil; so may tls.
func (s *Server) limitConnections(
	l net.Listener, maxOpen int, h *answer.Handler, current prometheus.Gauge, tls *access.TLS,
) *boundedListener {
	bounded := &boundedListener{
		Listener: l, max: maxOpen, elapsed: h.Clock.Elapsed, retireTimeout: defaultRetireTimeout, rejected: s.metrics.RejectedConnections, current: current,
	}
	if tls != nil {
		bounded.tokens = s.tokens
	}
	return bounded
}

// withTokens returns a handler whose requests are tasks of the given kind.
func (s *Server) withTokens(kind cpu.Kind, h http.Handler) http.Handler {
	return s.tokens.Handler(func(r *http.Request) cpu.Source { return cpu.Source{Kind: kind, Address: clientAddress(r)} }, h)
}

// newQuotas creates the rate limit quota service, which follows the rules.
func (s *Server) newQuotas(h *answer.Handler) {
	if s.options.NewQuotas == nil {
		return
	}
	settings := s.service.Settings()
	s.quotas = s.options.NewQuotas(quota.Options{
		Elapsed: h.Clock.ReadElapsed, Rules: s.service.Rules, ShadowMode: settings.ShadowMode, Allow: settings.Allow, Count: s.service.CountQuota, Metrics: s.metrics, Panics: h.Panics,
		Elector: s.options.Elector, Name: s.options.Name, LeaderChanged: s.logLeader,
	})
	s.health.setQuotaDomains(s.quotas.DividedDomains)
	s.service.OnRulesChanged(s.quotas.RulesChanged)
}

// closeQuotas closes the rate limit quota service.
func (s *Server) closeQuotas() {
	if s.quotas != nil {
		s.quotas.Close()
	}
}

// logLeader logs which replica divides the quotas of a domain.
func (s *Server) logLeader(domain string, leads bool, leader string) {
	s.health.update()
	field := zap.String("domain", domain)
	switch {
	case leads:
		s.logger.Info("this sluice divides the quotas of a domain", field)
	case leader != "":
		s.logger.Info("another sluice divides the quotas of a domain", field,
			zap.String("sluice", leader[:min(len(leader), 100)]))
	default:
		s.logger.Warn("this sluice does not divide the quotas of a domain: the store has not granted it the leadership",
			field)
	}
}

// transport returns the gRPC transport.
func (s *Server) transport(h *answer.Handler, creds credentials.TransportCredentials) transport.Transport {
	c := transport.Config{
		Limits: s.options.Limits, Handler: h, Quotas: s.quotas, Tokens: s.tokens, Creds: creds, Draining: s.draining,
		Tracer: s.tracer, Register: s.register,
	}
	if s.options.Tracing != nil {
		c.TraceHeaders = s.options.Tracing.Headers
	}
	if s.options.Transport == transportBuiltin {
		return builtin.New(c)
	}
	return grpcgo.New(c)
}

// register registers the gRPC services other than RateLimitService.
func (s *Server) register(own reflection.GRPCServer, others grpc.ServiceRegistrar) {
	grpc_health_v1.RegisterHealthServer(own, s.health.grpc)
	if s.options.Register != nil {
		s.options.Register(others)
	}
	reflection.Register(own)
}

// plainJSON returns the handler of /json on the plain-text listener. It logs settings that may
// surprise the operator.
func (s *Server) plainJSON(json http.Handler) http.Handler {
	secure := s.options.TLS
	switch {
	case s.options.JSONAddr != "":
		return onlyOverTLS
	case !s.options.JSON:
		return jsonDisabled
	case s.service.Settings().Allow != nil:
		s.logger.Info("/json is disabled: with --grpc-allow it is only served over TLS, at --json-addr")
		return onlyOverTLS
	case secure.ChecksClients() && s.options.HTTPAddr != "":
		s.logger.Warn("/json on the http listener requires no client certificate, unlike the gRPC listener; to serve it over TLS, set --json-addr")
	}
	return json
}

func (s *Server) openListener(ctx context.Context, name, addr string, mode fs.FileMode) (net.Listener, error) {
	open := s.options.OpenListener
	if open == nil {
		open = func(ctx context.Context, addr string, mode fs.FileMode) (net.Listener, error) {
			return listen(ctx, addr, s.options.ReusePort, mode)
		}
	}
	l, err := open(ctx, addr, mode)
	if _, optional := s.options.Optional[name]; !optional && errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s listener: %w; choose another address with --%[1]s-addr", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s listener: %w", name, err)
	}
	fields := []zap.Field{zap.String("listener", name), zap.Stringer("addr", l.Addr())}
	if name == "grpc" {
		fields = append(fields, zap.String("transport", s.options.Transport))
	}
	s.logger.Info("listening", fields...)
	return l, nil
}

// closeListeners closes the quota service and the open listeners, which have not accepted a
// connection yet.
func (s *Server) closeListeners() {
	s.closeQuotas()
	if s.grpc != nil {
		s.grpc.Stop()
		_ = s.grpcConn.Close()
	}
	for _, l := range slices.Concat(s.json, s.http) {
		_ = l.Listener.Close()
	}
}

// Run serves until ctx is done. Then it turns unhealthy, waits for the drain delay, lets calls in
// flight finish, and returns nil. If a listener fails, it returns the error. Listen must be called
// before.
func (s *Server) Run(ctx context.Context) error {
	// The listeners are open, so clients may already be waiting. The server must be healthy before
	// it serves them; otherwise their first health check would return NOT_SERVING.
	s.health.setServing(true)
	group, ctx := errgroup.WithContext(ctx)
	if s.grpc != nil {
		group.Go(func() error {
			// ErrServerStopped: stopped before it started to serve.
			if err := s.grpc.Serve(s.grpcConn); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				return fmt.Errorf("serve grpc: %w", err)
			}
			return nil
		})
	}
	for _, l := range slices.Concat(s.json, s.http) {
		group.Go(func() error {
			if err := l.Serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve http on %v: %w", l.Listener.Addr(), err)
			}
			return nil
		})
	}
	group.Go(func() error {
		s.admin.Watch(ctx)
		return nil
	})
	if s.options.UnhealthyWithoutStore {
		group.Go(func() error {
			s.health.poll(ctx)
			return nil
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		s.drain(context.WithoutCancel(ctx))
		return nil
	})
	return group.Wait()
}

// drain shuts down the server in three steps. First it turns unhealthy, so that clients use other
// servers while calls are still answered. Then it ends gRPC and /json, whose replies may be delayed,
// and last the listeners for operators.
func (s *Server) drain(ctx context.Context) {
	telemetry.Raise(s.logger, telemetry.Draining, "", zap.Duration("delay", s.options.DrainDelay))
	s.health.setServing(false)
	resigned := make(chan struct{})
	go func() { // another replica takes over the divided quotas during the drain delay
		defer close(resigned)
		if s.quotas != nil {
			s.quotas.Resign()
		}
	}()
	s.sleep(s.options.DrainDelay)
	close(s.draining)
	began := time.Now() //nolint:forbidigo // measures
	if s.grpc != nil {
		timeout := time.AfterFunc(s.options.DrainTimeout, func() {
			s.logger.Warn("drain timeout exceeded; aborting calls in flight",
				zap.Duration("timeout", s.options.DrainTimeout))
			s.grpc.Stop()
		})
		s.grpc.GracefulStop()
		timeout.Stop()
	}
	shutDown(ctx, s.json, max(time.Second, s.options.DrainTimeout-time.Since(began)))
	select {
	case <-resigned:
	case <-time.After(time.Second): // the leaderships will expire
	}
	s.closeQuotas()
	shutDown(ctx, s.http, time.Second)
	s.logger.Info("stopped", telemetry.Clear("", telemetry.Draining))
}

// shutDown shuts down HTTP listeners concurrently, so that a slow client of one does not delay the
// others. It waits at most timeout for responses.
func shutDown(ctx context.Context, all []*httpListener, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var shutdowns sync.WaitGroup
	for _, l := range all {
		shutdowns.Go(func() {
			if err := l.Shutdown(ctx); err != nil {
				_ = l.Server.Close() // a client keeps its connection open
			}
		})
	}
	shutdowns.Wait()
}
