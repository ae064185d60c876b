package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/sluice-ratelimit/sluice/server/guard"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Options say where a [Server] listens and how it ends.
type Options struct {
	// The addresses are host:port; GRPCAddr may be unix:///path or unix:@name
	// too. Port 0 picks a free one; an empty address switches a listener off.
	GRPCAddr, HTTPAddr, DebugAddr, MetricsAddr string
	// GRPCSocketMode is the mode of the socket file that GRPCAddr names. 0 means 0660: the
	// socket's user and group may connect.
	GRPCSocketMode fs.FileMode
	// JSONAddr is for /json over TLS, instead of on the HTTP listener. Optional. It
	// needs TLS.
	JSONAddr string
	// ReusePort sets SO_REUSEPORT on all TCP listeners, so that a new process can listen on
	// the same ports before the old one ends. There is then no error if another sluice has a
	// port by mistake.
	ReusePort bool
	// Optional names the HTTP listeners that are left out, with a warning, if another process
	// has their port. The value says how to move the listener.
	Optional map[string]string
	// NoPlainJSON leaves /json out of the HTTP listener, which does not identify clients.
	NoPlainJSON bool
	// MetricsPath is where the metrics listener answers. Empty means /metrics.
	MetricsPath string
	Limits      Limits
	// TLS secures the gRPC listener and that of JSONAddr. Nil means plain text. The caller
	// runs it. [Settings].Allow needs one that asks clients for certificates.
	TLS *TLS
	// PreciseCodes gives errors that envoyproxy/ratelimit answers with UNKNOWN a
	// status code of their own.
	PreciseCodes bool
	// UnhealthyWithoutRules makes the server unhealthy while there is no domain: before the
	// first rules, and with a set that has none. Rules that do not load change nothing.
	UnhealthyWithoutRules bool
	// Tracing, if not nil, makes a span of every rate-limit request over gRPC.
	Tracing *telemetry.Tracing
	// DrainDelay is the time between turning unhealthy and taking no new calls.
	DrainDelay time.Duration
	// DrainTimeout bounds the wait for calls in flight. 0 means 30 s.
	DrainTimeout time.Duration
}

// defaultSocketMode lets the socket's user and group connect.
const defaultSocketMode fs.FileMode = 0o660

// Server answers on all listeners.
type Server struct {
	options  Options
	service  *Service
	metrics  *telemetry.Metrics
	logger   *zap.Logger
	health   *liveness
	draining chan struct{} // closed when the drain delay is over
	grpc     *grpc.Server
	grpcConn net.Listener
	http     []*httpListener
}

type httpListener struct {
	*http.Server
	net.Listener
}

// New returns a server that does not listen yet.
func New(options Options, service *Service, metrics *telemetry.Metrics, logger *zap.Logger) *Server {
	if options.DrainTimeout == 0 {
		options.DrainTimeout = 30 * time.Second
	}
	if options.GRPCSocketMode == 0 {
		options.GRPCSocketMode = defaultSocketMode
	}
	if options.MetricsPath == "" {
		options.MetricsPath = "/metrics"
	}
	s := &Server{
		options: options, service: service, metrics: metrics, logger: logger,
		draining: make(chan struct{}),
	}
	var ruled func() bool
	if options.UnhealthyWithoutRules {
		ruled = func() bool {
			set := service.Rules()
			return set != nil && len(set.Domains()) > 0
		}
	}
	s.health = newLiveness(ruled)
	update := s.health.update
	service.onServe.Store(&update)
	return s
}

// Listen opens all listeners and logs their addresses. If one fails, it closes all and returns
// why. It leaves out those of [Options].Optional whose port is taken.
func (s *Server) Listen(ctx context.Context) error {
	allow, secure := s.service.settings.Allow, s.options.TLS
	switch {
	case allow != nil && (secure == nil || secure.options.CA == ""):
		return errors.New("clients without certificates cannot be told apart: an allow-list needs TLS with authorities")
	case s.options.JSONAddr != "" && secure == nil:
		return errors.New("json listener: it needs TLS")
	}
	h := newHandler(s.service, s.logger, s.options.PreciseCodes)
	h.tell = newTell(s.options.Tracing, s.logger)
	if s.options.GRPCAddr != "" {
		l, err := s.open(ctx, "grpc", s.options.GRPCAddr, s.options.GRPCSocketMode)
		if err != nil {
			return err // it is the first listener, so there is none to close
		}
		s.grpcConn = &boundedListener{Listener: l, max: int64(s.options.Limits.MaxConnections), rejected: s.metrics.RejectedConnections}
		options := grpcOptions(s.options.Limits, s.metrics.Calls, s.draining)
		guarding := guard.New(guard.Options{
			MaxStreams:      int(s.options.Limits.MaxStreams),
			HeaderListBytes: decodedHeaders * int(s.options.Limits.MaxHeaderBytes),
			Ended:           s.metrics.EndedConnections,
			Logger:          h.rare,
		})
		creds := insecure.NewCredentials()
		switch {
		case allow != nil:
			creds = identifying{secure, allow}
		case secure != nil:
			creds = secure
		}
		headers := &headerBound{max: int(s.options.Limits.MaxHeaderBytes), rejected: s.metrics.Rejected.Headers, logger: h.rare}
		if s.options.Tracing != nil {
			headers.kept = s.options.Tracing.Headers
		}
		options = append(options, grpc.Creds(guarding.Credentials(creds)), grpc.InTapHandle(headers.inspect))
		if s.options.Tracing != nil {
			options = append(options, tracingOption(s.options.Tracing))
		}
		s.grpc = grpc.NewServer(options...)
		s.grpc.RegisterService(&serviceDesc, h)
		grpc_health_v1.RegisterHealthServer(s.grpc, s.health.grpc)
		reflection.Register(s.grpc)
	}
	json := http.Handler(jsonHandler{h, int64(min(maxHTTPBody, s.options.Limits.MaxMessageBytes))})
	plainJSON := s.plainJSON(json)
	for _, l := range []struct {
		name, addr string
		handler    http.Handler
	}{
		{"http", s.options.HTTPAddr, publicHandler(s.health.ok, plainJSON)},
		{"json", s.options.JSONAddr, only("/json", json)},
		{"debug", s.options.DebugAddr, debugHandler(h, s.metrics)},
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
		head := maxHTTPHead
		if l.name == "debug" {
			// The query of /counters may have any descriptor, and a byte takes up to three.
			head += 3 * maxHTTPBody
		}
		if l.name == "debug" && conn.Addr().Network() != "unix" && !isLoopback(conn.Addr().String()) {
			s.logger.Warn("the debug listener has no authentication and can be reached from other machines; only /counters answers to this machine alone")
		}
		conn = &boundedListener{Listener: conn, max: int64(s.options.Limits.MaxHTTPConnections), rejected: s.metrics.RejectedConnections}
		server := newHTTPServer(recovering(l.handler, s.metrics, s.logger), head, s.logger)
		if l.name == "json" {
			conn = secure.listener(conn)
			server.ConnState, server.ErrorLog = secure.watchHandshakes, secure.debugLog()
		}
		s.http = append(s.http, &httpListener{server, conn})
	}
	return nil
}

// plainJSON returns the handler of /json on the plain listener. It logs a setting that may
// surprise the operator.
func (s *Server) plainJSON(json http.Handler) http.Handler {
	secure := s.options.TLS
	switch {
	case s.options.JSONAddr != "":
		return jsonOff
	case s.options.NoPlainJSON:
		return jsonLeftOut
	case s.service.settings.Allow != nil:
		s.logger.Info("/json is off: with --grpc-allow it is answered over TLS only, at --json-addr")
		return jsonOff
	case secure != nil && secure.options.CA != "" && s.options.HTTPAddr != "":
		s.logger.Warn("/json on the http listener asks for no client certificate, though the gRPC listener does: --json-addr moves it to TLS")
	}
	return json
}

func (s *Server) open(ctx context.Context, name, addr string, mode fs.FileMode) (net.Listener, error) {
	l, err := listen(ctx, addr, s.options.ReusePort, mode)
	if err != nil {
		return nil, fmt.Errorf("%s listener: %w", name, err)
	}
	s.logger.Info("listening", zap.String("listener", name), zap.Stringer("addr", l.Addr()))
	return l, nil
}

// close closes the open listeners. None has accepted a connection yet.
func (s *Server) close() {
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
		<-ctx.Done()
		s.drain(context.WithoutCancel(ctx))
		return nil
	})
	return group.Wait()
}

// drain ends the server in three steps. Health turns first, so that clients go elsewhere while
// calls are still answered. Then gRPC ends, and last the listeners that operators watch.
func (s *Server) drain(ctx context.Context) {
	s.logger.Info("draining", zap.Duration("delay", s.options.DrainDelay))
	s.health.serve(false)
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
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, l := range s.http {
		if err := l.Shutdown(ctx); err != nil {
			_ = l.Server.Close() // a client holds on to its connection
		}
	}
	s.logger.Info("stopped")
}
