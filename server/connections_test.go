package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// stoppedClock is a clock that does not advance.
func stoppedClock() time.Duration { return time.Second }

// dialFrom connects to the gRPC listener from a local address and sends the first bytes.
func (r *running) dialFrom(t *testing.T, address, preface string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", r.addr["grpc"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, preface) // the server may have closed the connection
	return conn
}

// pool is a client with several connections. It counts every dial.
type pool struct {
	conns []*grpc.ClientConn
	dials atomic.Int64
}

func (p *pool) grow(t *testing.T, r *running, n int) {
	t.Helper()
	for range n {
		conn := r.dial(t, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			p.dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}))
		p.conns = append(p.conns, conn)
		checkOK(t, conn)
	}
}

// check makes a call on each connection. None must have been dialled again.
func (p *pool) check(t *testing.T) {
	t.Helper()
	for _, conn := range p.conns {
		checkOK(t, conn)
	}
	if dials := p.dials.Load(); dials != int64(len(p.conns)) {
		t.Errorf("%d connections were dialled, want %d", dials, len(p.conns))
	}
}

// TestIdleConnectionsDoNotExcludeOthers checks that any number of idle connections of one address,
// used or unused, neither exclude nor close connections of another address.
func TestIdleConnectionsDoNotExcludeOthers(t *testing.T) {
	const maxOpen = 100
	request := simpleCall(t, 1)
	for attack, first := range map[string]string{"silent": "", "begun": preface, "used": preface + request} {
		t.Run(attack, func(t *testing.T) {
			s := service(t, answer.Settings{}, oneRule)
			r := serve(t, s, Options{Limits: transport.Limits{MaxConnections: maxOpen}})
			honest := &pool{}
			honest.grow(t, r, 4)
			for range 3 * maxOpen {
				r.dialFrom(t, "127.0.0.2", first)
			}
			await(t, "the surplus connections are closed", func() bool {
				return testutil.ToFloat64(s.Metrics().RejectedConnections) >= 2*maxOpen+4
			})
			honest.check(t)
			honest.grow(t, r, 4)
			for range maxOpen {
				r.dialFrom(t, "127.0.0.2", first)
			}
			honest.check(t)
			probe := r.dial(t)
			if _, err := grpc_health_v1.NewHealthClient(probe).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Errorf("a health check gets %v", err)
			}
		})
	}
}

// simpleCall returns the frames of a call on a stream.
func simpleCall(t *testing.T, stream uint32) string {
	t.Helper()
	message, err := proto.Marshal(simpleRequest())
	if err != nil {
		t.Fatal(err)
	}
	var block, out bytes.Buffer
	headers := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/" + answer.ServiceName + "/ShouldRateLimit"},
		{Name: ":authority", Value: "sluice"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	} {
		if err := headers.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	frames := http2.NewFramer(&out, nil)
	if err := errors.Join(
		frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}),
		frames.WriteData(stream, true, append([]byte{0, 0, 0, 0, byte(len(message))}, message...)),
	); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// watch opens a stream on conn that stays open until cancel.
func watch(t *testing.T, conn *grpc.ClientConn) (cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return cancel
}

// TestConnectionsBeyondTheLimitAreClosed checks that a new connection is rejected while all
// connections of its address have open calls. Once a call has ended, its connection is closed for a
// new one.
func TestConnectionsBeyondTheLimitAreClosed(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s, Options{Limits: transport.Limits{MaxConnections: 2}})
	first, second := r.dial(t), r.dial(t)
	cancel := watch(t, first)
	watch(t, second)
	awaitEnd(r.connect(t, ""))
	if got := testutil.ToFloat64(s.Metrics().RejectedConnections); got != 1 {
		t.Errorf("%v connections rejected, want 1", got)
	}
	checkOK(t, first)
	cancel()
	// The connection can be replaced once the server has received the end of the stream. Until then, a
	// client that waits for readiness dials again.
	checkOK(t, r.dial(t, grpc.WithDefaultCallOptions(grpc.WaitForReady(true))))
}

// TestEachAddressHasASlot checks that a connection of a new address is admitted even if all
// connections have open calls and belong to another address.
func TestEachAddressHasASlot(t *testing.T) {
	t.Parallel()
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{Limits: transport.Limits{MaxConnections: 4}})
	for range 4 {
		watch(t, r.dial(t, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, "tcp", addr)
		})))
	}
	honest := &pool{}
	honest.grow(t, r, 1)
	honest.check(t)
}

// TestUsedConnectionsAreClosedGracefully checks that a used connection is closed gracefully: its
// client receives GOAWAY, and calls that it sends before it reads GOAWAY are answered.
func TestUsedConnectionsAreClosedGracefully(t *testing.T) {
	t.Parallel()
	r := serve(t, service(t, answer.Settings{}, oneRule), Options{Limits: transport.Limits{MaxConnections: 1}}, func(s *Server) {
		if l, ok := s.grpcConn.(*boundedListener); ok {
			l.retireTimeout = time.Hour
		}
	})
	conn := r.connect(t, preface+simpleCall(t, 1))
	frames := http2.NewFramer(conn, conn)
	readUntil := func(name string, is func(f http2.Frame) bool) {
		t.Helper()
		for {
			f, err := frames.ReadFrame()
			if err != nil {
				t.Fatalf("no %s: %v", name, err)
			}
			if is(f) {
				return
			}
		}
	}
	endOf := func(stream uint32) func(f http2.Frame) bool {
		return func(f http2.Frame) bool {
			h, ok := f.(*http2.HeadersFrame)
			return ok && h.StreamID == stream && h.StreamEnded()
		}
	}
	readUntil("first answer", endOf(1))
	r.connect(t, "")
	readUntil("GOAWAY", func(f http2.Frame) bool {
		g, ok := f.(*http2.GoAwayFrame)
		return ok && g.ErrCode == http2.ErrCodeNo && g.LastStreamID == math.MaxInt32
	})
	if _, err := io.WriteString(conn, simpleCall(t, 3)); err != nil {
		t.Fatal(err)
	}
	readUntil("reply to a call that was sent before GOAWAY was read", endOf(3))
}
