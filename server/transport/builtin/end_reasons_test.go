package builtin

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// onlyConnection returns the built-in transport of a server, and its only connection.
func (r *running) onlyConnection(t *testing.T) (*Transport, *connection) {
	t.Helper()
	w, ok := r.grpc.(*Transport)
	if !ok {
		t.Fatal("this is not the built-in transport")
	}
	await(t, "there is a connection", func() bool { return len(w.snapshotConns()) == 1 })
	return w, w.snapshotConns()[0]
}

// TestEndReasons has a connection closed for each reason, and checks the metric.
func TestEndReasons(t *testing.T) {
	t.Parallel()
	many := func(c *rawClient, n int, write func() error) {
		for range n {
			if write() != nil {
				return // it was closed
			}
		}
	}
	begun := func(t *testing.T, c *connection) {
		t.Helper()
		await(t, "the connection has begun", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.gotSettings
		})
	}
	for _, tt := range []struct {
		want string
		do   func(t *testing.T, r *running, c *rawClient)
	}{
		{"flood", func(_ *testing.T, _ *running, c *rawClient) {
			many(c, 2000, func() error { return c.fr.WriteSettings() })
		}},
		{"too_many_pings", func(_ *testing.T, _ *running, c *rawClient) {
			many(c, 10, func() error { return c.fr.WritePing(false, [8]byte{}) })
		}},
		{"flow_control", func(_ *testing.T, _ *running, c *rawClient) {
			c.fr.AllowIllegalWrites = true
			many(c, 1, func() error { return c.fr.WriteWindowUpdate(0, 1<<31-1) })
		}},
		{"protocol", func(_ *testing.T, _ *running, c *rawClient) {
			c.fr.AllowIllegalWrites = true
			many(c, 1, func() error { return c.fr.WriteRawFrame(http2.FramePing, 0, 7, make([]byte, 8)) })
		}},
		{"memory", func(t *testing.T, r *running, c *rawClient) {
			t.Helper()
			w, _ := r.onlyConnection(t)
			w.buffered.bytes.Add(maxBuffered) // as if other connections buffered it, none of which can be closed
			many(c, 1, func() error {
				return c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x40\x7f")})
			})
		}},
		{"frame_timeout", func(t *testing.T, r *running, c *rawClient) {
			t.Helper()
			w, conn := r.onlyConnection(t)
			many(c, 1, func() error { _, err := c.conn.Write([]byte{0}); return err })
			await(t, "a part of a frame has come", func() bool { return conn.activity.incompleteFrameAt.Load() != 0 })
			conn.checkActivity(w.Handler.Clock.Elapsed() + maxFrameTime)
		}},
		{"write_timeout", func(t *testing.T, r *running, c *rawClient) {
			t.Helper()
			w, conn := r.onlyConnection(t)
			c.must(c.fr.WriteWindowUpdate(0, 1<<30))
			c.call(nil, 0)
			block := c.block(0) // contains only indexed fields, so it can be repeated
			go many(c, 1<<20, func() error {
				c.next += 2
				return errors.Join(c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next, BlockFragment: block, EndHeaders: true}),
					c.fr.WriteData(c.next, true, make([]byte, 5)))
			})
			await(t, "a write began", func() bool { return conn.activity.writeStartedAt.Load() != 0 })
			conn.checkActivity(w.Handler.Clock.Elapsed() + maxWriteTime)
		}},
		{"keepalive_timeout", func(t *testing.T, r *running, _ *rawClient) {
			t.Helper()
			w, conn := r.onlyConnection(t)
			begun(t, conn)
			limits := servertest.Limits(transport.Limits{})
			now := w.Handler.Clock.Elapsed() + limits.KeepaliveTime
			conn.checkActivity(now)
			conn.checkActivity(now + limits.KeepaliveTimeout)
		}},
		{"panic", func(t *testing.T, r *running, c *rawClient) {
			t.Helper()
			w, conn := r.onlyConnection(t)
			begun(t, conn)
			conn.mu.Lock()
			w.bridge = nil // makes the next check panic
			conn.mu.Unlock()
			c.path = grpc_health_v1.Health_Check_FullMethodName
			c.call(nil, 0)
		}},
	} {
		t.Run(tt.want, func(t *testing.T) {
			t.Parallel()
			s := service(t, answer.Settings{}, oneRule)
			r := serve(t, s)
			c := r.rawClient(t)
			tt.do(t, r, c)
			if tt.want != "write_timeout" {
				_, _ = io.Copy(io.Discard, c.conn) // until it is closed
			}
			wantEnded(t, r, s, tt.want)
		})
	}
	t.Run("handshake_timeout", func(t *testing.T) {
		t.Parallel()
		s := service(t, answer.Settings{}, oneRule)
		r := serve(t, s, transport.Limits{ConnectionTimeout: time.Millisecond})
		_, _ = io.Copy(io.Discard, r.tcp(t))
		wantEnded(t, r, s, "handshake_timeout")
	})
}

// wantEnded checks that one connection was closed for the given reason, and that it was logged.
func wantEnded(t *testing.T, r *running, s *answer.Service, reason string) {
	t.Helper()
	w, _ := r.grpc.(*Transport)
	await(t, "no connection is open", func() bool { return len(w.snapshotConns()) == 0 })
	if diff := cmp.Diff(map[string]float64{reason: 1}, endedBy(t, s)); diff != "" {
		t.Errorf("connections that were ended, by reason: -want +got\n%s", diff)
	}
	n := 0
	for _, e := range r.logs.All() {
		if strings.HasPrefix(e.Message, "gRPC connection closed") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the log has %d lines about it, want 1", n)
	}
}

// TestOrderlyClosesAreNotCounted has clients close their connections, and connections reach their
// age.
func TestOrderlyClosesAreNotCounted(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s)
	for range 3 {
		c := r.rawClient(t)
		c.call(nil, 0)
		c.readEnds(1)
		w, wc := r.onlyConnection(t)
		wc.postCommand(commandDrainAge)
		_ = c.conn.Close()
		await(t, "no connection is open", func() bool { return len(w.snapshotConns()) == 0 })
	}
	if why := endedBy(t, s); why != nil {
		t.Errorf("connections are counted as ended, by reason: %v", why)
	}
}

// TestServeAfterStopClosesListener stops a transport before it serves, as a signal during the start
// can.
func TestServeAfterStopClosesListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	s := service(t, answer.Settings{}, oneRule)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	must.OK(t, err)
	grpcs := start(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false), Creds: insecure.NewCredentials()})
	grpcs.GracefulStop()
	if err := grpcs.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		t.Errorf("Serve() = %v, want %v", err, grpc.ErrServerStopped)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's file: %v, want none", err)
	}
}

// idleListener is a listener without clients. Unlike with a socket, its Accept does not synchronize
// with Close, so that the race detector sees only the transport's synchronization.
type idleListener struct{ closed chan struct{} }

func (l idleListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l idleListener) Close() error {
	close(l.closed)
	return nil
}

func (idleListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestStopDuringServe stops the transport while Serve begins, as a signal during the start can. The
// race detector fails the test if the stop misses the goroutine that Serve starts.
func TestStopDuringServe(t *testing.T) {
	t.Parallel()
	s := service(t, answer.Settings{}, oneRule)
	for i := range 100 {
		w := start(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false), Creds: insecure.NewCredentials()})
		served := make(chan error, 1)
		go func() { served <- w.Serve(idleListener{make(chan struct{})}) }()
		for range i {
			runtime.Gosched() // varies the moment
		}
		w.GracefulStop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Fatalf("Serve() = %v, want nil or %v", err, grpc.ErrServerStopped)
		}
	}
}
