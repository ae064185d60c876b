package server

import (
	"cmp"
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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"github.com/sluice-ratelimit/sluice/server/guard"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Options say where a [Server] listens and how it ends. Most fields carry their flag as tags, as
// those of [Limits] do. An empty address switches a listener off.
type Options struct {
	GRPCAddr       string      `group:"listeners" name:"grpc-addr" type:"address" default:":8081" placeholder:"ADDR" help:"The rate-limit service: host:port, unix:///path or unix:@name. Default :8081."`
	GRPCSocketMode fs.FileMode `group:"listeners" name:"grpc-socket-mode" type:"mode" default:"0660" placeholder:"MODE" help:"Who may connect to the socket file of --grpc-addr: 0660 is its user and group, 0666 everyone who reaches the file. Default 0660."`
	Transport      string      `group:"listeners" name:"grpc-transport" enum:"own,grpc-go" default:"own" placeholder:"own|grpc-go" help:"What carries gRPC: sluice's own transport, or grpc-go, to go back to if a client does not get on with it. Default own."`
	HTTPAddr       string      `group:"listeners" name:"http-addr" type:"address" default:":8080" placeholder:"ADDR" help:"/healthcheck and /json. Default :8080."`
	// JSON is off where /json must not be asked without identifying its client.
	JSON        bool   `group:"listeners" name:"json" default:"true" negatable:"" help:"Answer /json on --http-addr, without authentication. On by default."`
	DebugAddr   string `group:"listeners" name:"debug-addr" type:"address" default:"127.0.0.1:6070" placeholder:"ADDR" help:"/rlconfig, /stats and profiles, without authentication. Default 127.0.0.1:6070."`
	MetricsAddr string `group:"listeners" name:"metrics-addr" type:"address" default:":9090" placeholder:"ADDR" help:"/metrics. Default :9090."`
	MetricsPath string `group:"listeners" name:"metrics-path" type:"path" default:"/metrics" placeholder:"PATH" help:"Where the metrics listener answers. Default /metrics."`
	// ReusePort lets another sluice take a port by mistake, without an error.
	ReusePort bool   `group:"listeners" default:"${reusePort}" negatable:"" help:"Let another process of the same user listen on the same TCP ports (SO_REUSEPORT), so that a new one can start before the old one ends. Off by default, on under the name ratelimit."`
	JSONAddr  string `group:"listeners" name:"json-addr" type:"address" placeholder:"ADDR" help:"/json over TLS, with the certificates of the rate-limit service, instead of on --http-addr. Default none."`

	StatusCodes string `group:"replies" name:"grpc-status-codes" enum:"compatible,precise" default:"compatible" placeholder:"compatible|precise" help:"Status codes of errors: UNKNOWN as envoyproxy/ratelimit, or INVALID_ARGUMENT and UNAVAILABLE. Default compatible."`
	Limits      Limits `embed:"" group:"bounds"`

	// UnhealthyWithoutRules makes no difference to rules that do not load.
	UnhealthyWithoutRules bool `group:"process" help:"Be unhealthy while no domain is configured. Default: be healthy, while every request passes or gets an error."`
	// UnhealthyWithoutStore needs a [Settings].Decider.
	UnhealthyWithoutStore bool          `group:"store" help:"Be unhealthy while the store does not answer. Default: be healthy, while --store-fallback decides."`
	DrainDelay            time.Duration `group:"process" range:"0s..24h" default:"0s" placeholder:"TIME" help:"Time between turning unhealthy and rejecting new calls at SIGTERM. Default 0s."`
	DrainTimeout          time.Duration `group:"process" range:"1ns..24h" default:"30s" placeholder:"TIME" help:"Longest wait for calls in flight at SIGTERM. Default 30s."`

	// Optional names the HTTP listeners that are left out, with a warning, if another process
	// has their port. The value says how to move the listener.
	Optional map[string]string `kong:"-"`
	// TLS secures the gRPC listener and that of JSONAddr. Nil means plain text. The caller
	// runs it. [Settings].Allow needs one that asks clients for certificates.
	TLS *TLS `kong:"-"`
	// Tracing, if not nil, makes a span of every rate-limit request over gRPC.
	Tracing *telemetry.Tracing `kong:"-"`
	// Register, if not nil, adds gRPC services to those of the server, and the headers of all calls
	// are kept for them. Suites that judge a transport bring services of their own.
	Register func(grpc.ServiceRegistrar) `kong:"-"`
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
	tracer   stats.Handler // nil without tracing
	grpc     transport     // nil without a gRPC listener
	grpcConn net.Listener
	http     []*httpListener
}

type httpListener struct {
	*http.Server
	net.Listener
}

// New returns a server that does not listen yet.
func New(options Options, service *Service, metrics *telemetry.Metrics, logger *zap.Logger) *Server {
	options.Transport = cmp.Or(options.Transport, transportOwn)
	s := &Server{
		options: options, service: service, metrics: metrics, logger: logger,
		draining: make(chan struct{}),
	}
	if options.Tracing != nil {
		s.tracer = newTracer(options.Tracing)
	}
	s.health = newLiveness(s.able)
	update := s.health.update
	service.onServe.Store(&update)
	return s
}

// able reports whether there is all without which the server is to be unhealthy.
func (s *Server) able() bool {
	if s.options.UnhealthyWithoutRules {
		if set := s.service.Rules(); set == nil || len(set.Domains()) == 0 {
			return false
		}
	}
	return !s.options.UnhealthyWithoutStore || s.service.decider.Up()
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
	h := newHandler(s.service, s.logger, s.options.StatusCodes == "precise")
	h.tell = newTell(s.options.Tracing, s.logger)
	if s.options.GRPCAddr != "" {
		l, err := s.open(ctx, "grpc", s.options.GRPCAddr, s.options.GRPCSocketMode)
		if err != nil {
			return err // it is the first listener, so there is none to close
		}
		s.grpcConn = &boundedListener{Listener: l, max: int64(s.options.Limits.MaxConnections), rejected: s.metrics.RejectedConnections, now: s.metrics.Carry(s.options.Transport)}
		creds := insecure.NewCredentials()
		switch {
		case allow != nil:
			creds = identifying{secure, allow}
		case secure != nil:
			creds = secure
		}
		if s.options.Transport == transportOwn {
			s.grpc = s.newOwn(h, creds)
		} else {
			s.grpc = s.newGRPC(h, creds)
		}
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
		server := newHTTPServer(recovering(l.handler, h.panics), head, s.logger)
		if l.name == "json" {
			conn = secure.listener(conn)
			server.ConnState, server.ErrorLog = secure.watchHandshakes, secure.debugLog()
		}
		s.http = append(s.http, &httpListener{server, conn})
	}
	return nil
}

// newOwn returns the own transport.
func (s *Server) newOwn(h *handler, creds credentials.TransportCredentials) *wire {
	b := newBridge(s.unaryInterceptors(h), s.streamInterceptors(h))
	if s.options.Tracing != nil {
		b.traces = keepTraces(s.options.Tracing.Headers)
	}
	s.register(b, withMetadata{b}, h)
	w := newWire(s.options.Limits, h, b, s.tracer, creds)
	w.hint = s.options.hint()
	return w
}

// newGRPC returns grpc-go's transport.
func (s *Server) newGRPC(h *handler, creds credentials.TransportCredentials) *grpc.Server {
	options := grpcOptions(s.options.Limits)
	guarding := guard.New(guard.Options{
		MaxStreams:      int(s.options.Limits.MaxStreams),
		HeaderListBytes: decodedHeaders * int(s.options.Limits.MaxHeaderBytes),
		OddActs:         s.metrics.Ended.OddActs,
		Memory:          s.metrics.Ended.Memory,
		Windows:         s.metrics.Ended.Windows,
		Logger:          h.rare,
	})
	headers := &headerBound{
		max: int(s.options.Limits.MaxHeaderBytes), all: s.options.Register != nil,
		rejected: s.metrics.Rejected.Headers, logger: h.rare,
	}
	if s.options.Tracing != nil {
		headers.kept = s.options.Tracing.Headers
	}
	if s.options.Register == nil {
		options = append(options, grpc.ChainUnaryInterceptor(boundUnary), grpc.ChainStreamInterceptor(boundStreams))
	}
	options = append(options, grpc.ChainUnaryInterceptor(s.unaryInterceptors(h)...),
		grpc.ChainStreamInterceptor(countStreams(s.metrics.Calls), new(places).bound), grpc.ChainStreamInterceptor(s.streamInterceptors(h)...))
	options = append(options, grpc.Creds(guarding.Credentials(greeting{creds, s.options.hint(), &s.metrics.Ended, h.rare})), grpc.InTapHandle(headers.inspect))
	if s.tracer != nil {
		options = append(options, grpc.StatsHandler(s.tracer))
	}
	server := grpc.NewServer(options...)
	s.register(server, server, h)
	return server
}

// register registers the services, those of [Options].Register with others.
func (s *Server) register(r reflection.GRPCServer, others grpc.ServiceRegistrar, h *handler) {
	r.RegisterService(&serviceDesc, h) // the first, for the sake of the own transport
	grpc_health_v1.RegisterHealthServer(r, s.health.grpc)
	if s.options.Register != nil {
		s.options.Register(others)
	}
	reflection.Register(r)
}

// unaryInterceptors are around the calls of services other than RateLimitService, whose handler
// ignores them.
func (s *Server) unaryInterceptors(h *handler) []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{countUnary(s.metrics.Calls), recoverUnary(h.panics)}
}

// streamInterceptors are around the streams of these services, once they have begun.
func (s *Server) streamInterceptors(h *handler) []grpc.StreamServerInterceptor {
	return []grpc.StreamServerInterceptor{endWith(s.draining), recoverStreams(h.panics)}
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
	said := []zap.Field{zap.String("listener", name), zap.Stringer("addr", l.Addr())}
	if name == "grpc" {
		said = append(said, zap.String("transport", s.options.Transport))
	}
	s.logger.Info("listening", said...)
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
