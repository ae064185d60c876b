//go:build torture

package torture

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestDrainOnTheWire checks the frames of a drain. Health fails first, and calls are still accepted
// for the whole delay. A GOAWAY that allows every stream precedes the one with the last stream ID,
// so that no call in transit is lost. Accepted calls are answered.
func TestDrainOnTheWire(t *testing.T) {
	Parallel(t)
	const delay = 3 * time.Second
	ledger := NewLedger(100, 1)
	s := Start(t, Options{Rules: ledger.Rules(), Args: []string{"--drain-delay", delay.String()}})
	w := dialRaw(t, s.Addr("grpc"))
	watch, err := grpc_health_v1.NewHealthClient(Dial(t, s.Addr("grpc"))).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	must.OK(t, err)
	health := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
			t.Fatalf("health is %v, %v, want %v", got.GetStatus(), err, want)
		}
	}
	health(grpc_health_v1.HealthCheckResponse_SERVING)
	const begun, during, after = 1, 3, 5 // stream IDs
	w.open(t, begun)

	signalled := time.Now()
	must.OK(t, s.Signal(syscall.SIGTERM))
	health(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	w.open(t, during)
	w.finish(t, during)
	w.await(t, "status 0 on stream 3")
	w.await(t, fmt.Sprintf("GOAWAY NO_ERROR, last stream %d", 1<<31-1))
	// On a busy machine GOAWAY may be late, so only an early one is an error.
	if waited := w.goAwayAt().Sub(signalled); waited < delay {
		t.Errorf("the first GOAWAY arrived %v after the signal, within the drain delay of %v", waited, delay)
	}
	w.await(t, fmt.Sprintf("GOAWAY NO_ERROR, last stream %d", during))
	w.open(t, after)
	w.finish(t, after)
	w.finish(t, begun)
	w.await(t, "status 0 on stream 1")
	w.await(t, "end")
	if got, want := w.frameLog(), []string{
		"status 0 on stream 3",
		"GOAWAY NO_ERROR, last stream 2147483647",
		"GOAWAY NO_ERROR, last stream 3",
		"status 0 on stream 1",
		"end",
	}; !slices.Equal(got, want) {
		t.Errorf("the client received\n%q, want\n%q", got, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if code, err := s.Wait(ctx); code != 0 || err != nil {
		t.Errorf("Wait() = %d, %v, want 0, nil; its log:\n%s", code, err, s.Log())
	}
}

// rawClient is a client that records received frames.
type rawClient struct {
	framer *http2.Framer

	mu     sync.Mutex // also locked while a frame is written
	what   []string
	goAway time.Time // arrival of the first GOAWAY
}

func dialRaw(t *testing.T, addr string) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must.OK(t, err)
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	w := &rawClient{framer: http2.NewFramer(conn, conn)}
	w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.write(t, func() error { return w.framer.WriteSettings() })
	var reading sync.WaitGroup
	reading.Go(w.read)
	t.Cleanup(func() {
		conn.Close()
		reading.Wait()
	})
	return w
}

func (w *rawClient) write(t *testing.T, frame func() error) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	must.OK(t, frame())
}

// read records frames that end calls and connections. It answers SETTINGS and PING.
func (w *rawClient) read() {
	for {
		f, err := w.framer.ReadFrame()
		w.mu.Lock()
		switch f := f.(type) {
		case nil:
			w.what = append(w.what, "end")
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = w.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = w.framer.WritePing(true, f.Data)
			}
		case *http2.GoAwayFrame:
			if w.goAway.IsZero() {
				w.goAway = time.Now()
			}
			w.what = append(w.what, fmt.Sprintf("GOAWAY %v, last stream %d", f.ErrCode, f.LastStreamID))
		case *http2.RSTStreamFrame:
			w.what = append(w.what, fmt.Sprintf("%v on stream %d", f.ErrCode, f.StreamID))
		case *http2.MetaHeadersFrame:
			for _, field := range f.RegularFields() {
				if field.Name == "grpc-status" {
					w.what = append(w.what, fmt.Sprintf("status %s on stream %d", field.Value, f.StreamID))
				}
			}
		}
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// open starts a call.
func (w *rawClient) open(t *testing.T, stream uint32) {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: rls.RateLimitService_ShouldRateLimit_FullMethodName},
		{Name: ":authority", Value: "sluice"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	} {
		f.Sensitive = true // keeps the HPACK table unchanged, because each call has a new encoder
		must.OK(t, e.WriteField(f))
	}
	w.write(t, func() error {
		return w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
	})
}

// finish sends the request message of a call.
func (w *rawClient) finish(t *testing.T, stream uint32) {
	t.Helper()
	w.write(t, func() error {
		return w.framer.WriteData(stream, true, hostile.Request("torture", "fixed_window", "wire"))
	})
}

func (w *rawClient) frameLog() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.what)
}

// goAwayAt returns the arrival time of the first GOAWAY.
func (w *rawClient) goAwayAt() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.goAway
}

func (w *rawClient) await(t *testing.T, frame string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("waited for %s, received %q", frame, w.frameLog())
		}
	})
	suite.Eventually(t, frame, func() bool { return slices.Contains(w.frameLog(), frame) })
}
