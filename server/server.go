package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	"github.com/sluice-ratelimit/sluice/server/rlqs"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/builtin"
	"github.com/sluice-ratelimit/sluice/server/transport/grpcgo"
	"github.com/sluice-ratelimit/sluice/server/web"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// defaultSocketMode lets the socket's user and group connect.
const defaultSocketMode fs.FileMode = 0o660

// transportBuiltin is the default of [Options].Transport.
const transportBuiltin = "builtin"

// Server answers on all listeners.
type Server struct {
	options  Options
	service  *answer.Service
	metrics  *telemetry.Metrics
	logger   *zap.Logger
	health   *liveness
	draining chan struct{} // closed when the drain delay is over
	tracer   stats.Handler // nil without tracing
	quotas   *rlqs.Service
	admin    *admin.API
	grpc     transport.Transport // nil without a gRPC listener
	grpcConn net.Listener
	http     []*httpListener
}

type httpListener struct {
	*http.Server
	net.Listener
}

// New returns a server that does not listen yet.
func New(options Options, service *answer.Service, logger *zap.Logger) *Server {
	options.Transport = cmp.Or(options.Transport, transportBuiltin)
	s := &Server{
		options: options, service: service, metrics: service.Metrics(), logger: logger,
		draining: make(chan struct{}),
	}
	if options.Tracing != nil {
		s.tracer = answer.NewTracer(options.Tracing)
	}
	s.health = newLiveness(s.able)
	service.OnServe(s.health.update)
	return s
}

// able reports whether there is all without which the server is to be unhealthy.
func (s *Server) able() bool {
	if s.options.UnhealthyWithoutRules {
		if set := s.service.Rules(); set == nil || len(set.Domains()) == 0 {
			return false
		}
	}
	return !s.options.UnhealthyWithoutStore || s.service.Up()
}

// Listen opens all listeners and logs their addresses. If one fails, it closes all and returns
// why. It leaves out those of [Options].Optional whose port is taken.
func (s *Server) Listen(ctx context.Context) error {
	secure := s.options.TLS
	creds, err := access.Credentials(secure, s.service.Settings().Allow)
	switch {
	case err != nil:
		return err
	case s.options.JSONAddr != "" && secure == nil:
		return errors.New("json listener: it needs TLS")
	case s.options.DebugRights.Given() && s.options.DebugTLS == nil:
		return errors.New("debug listener: rights need TLS")
	}
	h := answer.NewHandler(s.service, s.logger, s.options.Tracing, s.options.StatusCodes == "precise")
	s.divide(h)
	s.admin = admin.New(h, s.quotas, s.options.DebugRights)
	if s.options.GRPCAddr != "" {
		l, err := s.open(ctx, "grpc", s.options.GRPCAddr, s.options.GRPCSocketMode)
		if err != nil {
			s.close()
			return err
		}
		s.grpcConn = s.bound(l, s.options.Limits.MaxConnections, h, s.metrics.SetTransport(s.options.Transport))
		s.grpc = s.transport(h, creds)
	}
	json := http.Handler(newJSONHandler(h, min(web.MaxBody, s.options.Limits.MaxMessageBytes)))
	plainJSON := s.plainJSON(json)
	for _, l := range []struct {
		name, addr string
		handler    http.Handler
	}{
		{"http", s.options.HTTPAddr, publicHandler(s.health.ok, plainJSON)},
		{"json", s.options.JSONAddr, only("/json", json)},
		{"debug", s.options.DebugAddr, s.admin.Handler(debugPages(s.metrics))},
		{"metrics", s.options.MetricsAddr, metricsHandler(s.metrics, s.options.MetricsPath)},
	} {
		if l.addr == "" {
			continue
		}
		conn, err := s.open(ctx, l.name, l.addr, defaultSocketMode)
		if remedy, optional := s.options.Optional[l.name]; optional && errors.Is(err, syscall.EADDRINUSE) {
			s.logger.Warn("a listener is left out: another process has its port",
				zap.String("listener", l.name), zap.String("moved_by", remedy), zap.Error(err))
			continue
		}
		if err != nil {
			s.close()
			return err
		}
		if l.name == "debug" && !s.options.DebugRights.Given() && !web.IsLocal(conn.Addr()) {
			s.logger.Warn("the debug listener has no authentication and can be reached from other machines; counters and the state answer to this machine alone")
		}
		most, head := s.httpBounds(l.name)
		bounded := s.bound(conn, most, h, nil)
		server := newHTTPServer(recovering(withoutGRPC(l.name, h, l.handler), h.Panics), head, s.logger)
		bounded.serveOn(server)
		conn = bounded
		if tls := map[string]*access.TLS{"json": secure, "debug": s.options.DebugTLS}[l.name]; tls != nil {
			conn = tls.Secure(server, conn)
		}
		s.http = append(s.http, &httpListener{server, conn})
	}
	return nil
}

// maxOperatorConnections is the largest number of connections of a listener for operators and Prometheus.
const maxOperatorConnections = 100

// httpBounds returns the largest number of connections of a listener, and of bytes of the header of a request.
func (s *Server) httpBounds(listener string) (connections, headerBytes int) {
	connections, headerBytes = s.options.Limits.MaxHTTPConnections, maxHTTPHead
	switch listener {
	case "debug":
		// The query of /counters may have any descriptor, and a byte takes up to three.
		return min(connections, maxOperatorConnections), headerBytes + 3*web.MaxBody
	case "metrics":
		connections = min(connections, maxOperatorConnections)
	}
	return connections, headerBytes
}

// bound bounds the connections of a listener. The gauge shows their number, if it is not nil.
func (s *Server) bound(l net.Listener, most int, h *answer.Handler, current prometheus.Gauge) *connections {
	return &connections{
		Listener: l, max: most, elapsed: h.Clock.Elapsed, patience: retirePatience, rejected: s.metrics.RejectedConnections, current: current,
	}
}

// divide makes the rate limit quota service, and has it follow the rules.
func (s *Server) divide(h *answer.Handler) {
	settings := s.service.Settings()
	s.quotas = rlqs.New(rlqs.Options{
		Elapsed: h.Clock.Elapsed, Rules: s.service.Rules, ShadowMode: settings.ShadowMode, Allow: settings.Allow, Count: s.service.CountQuota, Metrics: s.metrics, Panics: h.Panics,
		Elector: s.options.Elector, Name: s.options.Name, LeaderChanged: s.logLeader,
	})
	s.health.shares(s.quotas.DividedDomains)
	s.service.OnServe(s.quotas.RulesChanged)
}

// logLeader logs which replica divides the quotas of a domain.
func (s *Server) logLeader(domain string, leads bool, leader string) {
	s.health.update()
	about := zap.String("domain", domain)
	switch {
	case leads:
		s.logger.Info("this sluice divides the quotas of a domain", about)
	case leader != "":
		s.logger.Info("another sluice divides the quotas of a domain", about, zap.String("sluice", leader[:min(len(leader), 100)]))
	default:
		s.logger.Warn("this sluice does not divide the quotas of a domain: the store has not said that it may", about)
	}
}

// transport returns what carries gRPC.
func (s *Server) transport(h *answer.Handler, creds credentials.TransportCredentials) transport.Transport {
	c := transport.Config{
		Limits: s.options.Limits, Handler: h, Quotas: s.quotas, Creds: creds, Hint: s.options.hint(), Draining: s.draining,
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

// register registers the services beside RateLimitService.
func (s *Server) register(own reflection.GRPCServer, others grpc.ServiceRegistrar) {
	grpc_health_v1.RegisterHealthServer(own, s.health.grpc)
	if s.options.Register != nil {
		s.options.Register(others)
	}
	reflection.Register(own)
}

// plainJSON returns the handler of /json on the plain listener. It logs a setting that may
// surprise the operator.
func (s *Server) plainJSON(json http.Handler) http.Handler {
	secure := s.options.TLS
	switch {
	case s.options.JSONAddr != "":
		return jsonOff
	case !s.options.JSON:
		return jsonLeftOut
	case s.service.Settings().Allow != nil:
		s.logger.Info("/json is off: with --grpc-allow it is answered over TLS only, at --json-addr")
		return jsonOff
	case secure.ChecksClients() && s.options.HTTPAddr != "":
		s.logger.Warn("/json on the http listener asks for no client certificate, though the gRPC listener does: --json-addr moves it to TLS")
	}
	return json
}

func (s *Server) open(ctx context.Context, name, addr string, mode fs.FileMode) (net.Listener, error) {
	l, err := listen(ctx, addr, s.options.ReusePort, mode)
	if err != nil {
		return nil, fmt.Errorf("%s listener: %w", name, err)
	}
	said := []zap.Field{zap.String("listener", name), zap.Stringer("addr", l.Addr())}
	if name == "grpc" {
		said = append(said, zap.String("transport", s.options.Transport))
	}
	s.logger.Info("listening", said...)
	return l, nil
}

// close closes the open listeners. None has accepted a connection yet.
func (s *Server) close() {
	s.quotas.Close()
	if s.grpc != nil {
		s.grpc.Stop()
		_ = s.grpcConn.Close()
	}
	for _, l := range s.http {
		_ = l.Listener.Close()
	}
}

// Run serves until ctx is done. Then it turns unhealthy, waits for the drain delay, lets the calls
// in flight finish, and returns nil. If a listener fails, it returns why. Call Listen first.
func (s *Server) Run(ctx context.Context) error {
	// The listeners are open, so clients may already wait for an answer. The server is healthy
	// before it gives the first; otherwise a client that asks at once would get NOT_SERVING.
	s.health.serve(true)
	group, ctx := errgroup.WithContext(ctx)
	if s.grpc != nil {
		group.Go(func() error {
			// ErrServerStopped: told to stop before it began.
			if err := s.grpc.Serve(s.grpcConn); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				return fmt.Errorf("serve grpc: %w", err)
			}
			return nil
		})
	}
	for _, l := range s.http {
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
			s.health.follow(ctx)
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

// drain ends the server in three steps. Health turns first, so that clients go elsewhere while
// calls are still answered. Then gRPC ends, and last the listeners that operators watch.
func (s *Server) drain(ctx context.Context) {
	telemetry.Raise(s.logger, telemetry.Draining, "", zap.Duration("delay", s.options.DrainDelay))
	s.health.serve(false)
	resigned := make(chan struct{})
	go func() { // while calls are answered, another sluice takes over what is divided
		defer close(resigned)
		s.quotas.Resign()
	}()
	time.Sleep(s.options.DrainDelay)
	close(s.draining)
	if s.grpc != nil {
		bound := time.AfterFunc(s.options.DrainTimeout, func() {
			s.logger.Warn("calls are still in flight at the end of the drain timeout", zap.Duration("timeout", s.options.DrainTimeout))
			s.grpc.Stop()
		})
		s.grpc.GracefulStop()
		bound.Stop()
	}
	select {
	case <-resigned:
	case <-time.After(time.Second): // leaderships expire
	}
	s.quotas.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	shutDown(ctx, s.http)
	s.logger.Info("stopped", telemetry.Clear("", telemetry.Draining))
}

// shutDown ends HTTP listeners. Each finishes its responses until ctx is done, however slowly clients of the others read.
func shutDown(ctx context.Context, all []*httpListener) {
	var ending sync.WaitGroup
	for _, l := range all {
		ending.Go(func() {
			if err := l.Shutdown(ctx); err != nil {
				_ = l.Server.Close() // a client holds on to its connection
			}
		})
	}
	ending.Wait()
}
