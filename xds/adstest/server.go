// Package adstest runs a management server for tests: that of go-control-plane with its snapshot
// cache, on a real socket.
package adstest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	published "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// Options configure a [Server]. The zero value listens in plain text on a free port of 127.0.0.1.
type Options struct {
	// Addr is where it listens. Default 127.0.0.1:0.
	Addr string
	// Credentials secure the connection; nil means plain text.
	Credentials credentials.TransportCredentials
	// NodeID is the node that its resources are for. Default "default".
	NodeID string
}

// Server is a running management server. It is safe for concurrent use. Callers must call
// [Server.Stop].
type Server struct {
	nodeID string
	addr   string
	grpc   *grpc.Server
	done   chan struct{}
	cache  cache.SnapshotCache

	mu       sync.Mutex
	requests []Request
	// changed is closed and replaced after each request.
	changed chan struct{}
}

// Request is a received request with the headers of its stream.
type Request struct {
	*discovery.DiscoveryRequest

	Stream  int64
	Headers metadata.MD
}

// Start starts a server without resources, which answers nothing before [Server.Set].
func Start(o Options) (*Server, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", cmp.Or(o.Addr, "127.0.0.1:0"))
	if err != nil {
		return nil, err
	}
	s := &Server{
		nodeID: cmp.Or(o.NodeID, "default"), addr: l.Addr().String(), done: make(chan struct{}),
		cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil), changed: make(chan struct{}),
	}
	s.grpc = grpc.NewServer(grpc.Creds(o.Credentials)) // nil is plain text
	var headers sync.Map                               // by stream
	ads := server.NewServer(context.Background(), s.cache, server.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, stream int64, _ string) error {
			md, _ := metadata.FromIncomingContext(ctx)
			headers.Store(stream, md)
			return nil
		},
		StreamRequestFunc: func(stream int64, r *discovery.DiscoveryRequest) error {
			md, _ := headers.Load(stream)
			s.record(Request{r, stream, md.(metadata.MD)}) //nolint:forcetypeassert // stored above
			return nil
		},
	})
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, ads)
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(l) // returns after Stop
	}()
	return s, nil
}

// Addr returns the address.
func (s *Server) Addr() string { return s.addr }

// Stop ends the server and all streams, as a crash would.
func (s *Server) Stop() {
	s.grpc.Stop()
	<-s.done
}

// Set replaces all resources.
func (s *Server) Set(version string, resources ...*ratelimitv3.RateLimitConfig) error {
	all := make([]types.Resource, len(resources))
	for i, r := range resources {
		// The cache requires the published message. Fields that it lacks are kept as unknown
		// fields.
		wire, err := proto.Marshal(r)
		if err != nil {
			return err
		}
		m := &published.RateLimitConfig{}
		if err := proto.Unmarshal(wire, m); err != nil {
			return err
		}
		all[i] = m
	}
	snapshot, err := cache.NewSnapshot(version, map[string][]types.Resource{resource.RateLimitConfigType: all})
	if err != nil {
		return err
	}
	return s.cache.SetSnapshot(context.Background(), s.nodeID, snapshot)
}

func (s *Server) record(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Wait returns the first request that match accepts, including past ones.
func (s *Server) Wait(ctx context.Context, match func(Request) bool) (Request, error) {
	for {
		s.mu.Lock()
		requests := s.requests
		changed := s.changed
		s.mu.Unlock()
		if i := slices.IndexFunc(requests, match); i >= 0 {
			return requests[i], nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Request{}, fmt.Errorf("wait for a request: %w; there were %v", ctx.Err(), requests)
		}
	}
}

// Acked accepts the ACK of a version.
func Acked(version string) func(Request) bool {
	return func(r Request) bool {
		return r.GetVersionInfo() == version && r.GetErrorDetail() == nil && r.GetResponseNonce() != ""
	}
}

// Rejected accepts any NACK.
func Rejected(r Request) bool { return r.GetErrorDetail() != nil }
