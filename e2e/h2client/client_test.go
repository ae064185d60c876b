package h2client

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// server is the server's side of a connection. It discards what it reads.
type server struct {
	conn   net.Conn
	framer *http2.Framer
	data   int // bytes of DATA
}

// connect returns both sides of a connection whose server has sent its SETTINGS.
func connect(t *testing.T, settings ...http2.Setting) (*Conn, *server) {
	t.Helper()
	here, there := net.Pipe()
	s := &server{conn: there, framer: http2.NewFramer(there, there)}
	go func() {
		preface := make([]byte, len(http2.ClientPreface))
		_, err := there.Read(preface)
		for err == nil {
			var f http2.Frame
			if f, err = s.framer.ReadFrame(); err == nil && f.Header().Type == http2.FrameData {
				s.data += int(f.Header().Length)
			}
		}
	}()
	c, err := New(here, Options{Window: 1 << 20})
	must.OK(t, err)
	must.OK(t, s.framer.WriteSettings(settings...))
	t.Cleanup(func() {
		c.Close()
		<-c.Done
	})
	return c, s
}

// answer ends a stream with trailers.
func (s *server) answer(t *testing.T, stream uint32) {
	t.Helper()
	var block bytes.Buffer
	must.OK(t, hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: "grpc-status", Value: "0", Sensitive: true}))
	must.OK(t, s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
}

// TestViolations sends frames to a client that has open calls on the streams 1 and 3, and has reset 5.
func TestViolations(t *testing.T) {
	t.Parallel()
	const notOpen = "the stream does not exist or has been answered"
	for name, test := range map[string]struct {
		do   func(s *server)
		want string
	}{
		"two answers":      {func(s *server) { s.answer(t, 1); s.answer(t, 3) }, ""},
		"an answer late":   {func(s *server) { s.answer(t, 5) }, ""},
		"no error":         {func(s *server) { s.answer(t, 1); must.OK(t, s.framer.WriteRSTStream(1, http2.ErrCodeNo)) }, ""},
		"second answer":    {func(s *server) { s.answer(t, 1); s.answer(t, 1) }, notOpen},
		"another stream":   {func(s *server) { s.answer(t, 3); s.answer(t, 7) }, notOpen},
		"reset afterwards": {func(s *server) { s.answer(t, 1); must.OK(t, s.framer.WriteRSTStream(1, http2.ErrCodeCancel)) }, notOpen},
		"no trailers":      {func(s *server) { must.OK(t, s.framer.WriteData(1, true, nil)) }, "stream 1 ends without trailers"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, s := connect(t)
			for _, timeout := range []time.Duration{time.Minute, time.Minute, time.Second} {
				go func() { _, _ = c.Call(t.Context(), "/", timeout, []byte("x")) }()
				synctest.Wait()
			}
			time.Sleep(2 * time.Second)
			test.do(s)
			synctest.Wait()
			if got := c.Violation(); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%s: violation %q, want %q", name, got, test.want)
			}
		})
	}
}

// TestSendWaitsForWindows sends a message that is larger than the windows.
func TestSendWaitsForWindows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, server := connect(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
		s, err := c.Open("/", 0, nil, func(*Stream, []byte) {})
		must.OK(t, err)
		sent := make(chan error, 2)
		go func() { sent <- s.Send(make([]byte, 70_000)) }()
		sum := 0
		for _, grow := range []struct{ stream, bytes, sends uint32 }{{0, 0, 100}, {1, 50_000, 50_000}, {1, 50_000, 15_435}, {0, 50_000, 70_005 - 65_535}} {
			if grow.bytes > 0 {
				must.OK(t, server.framer.WriteWindowUpdate(grow.stream, grow.bytes))
			}
			synctest.Wait()
			if sum += int(grow.sends); server.data != sum {
				t.Fatalf("%d bytes were sent, want %d", server.data, sum)
			}
		}
		must.OK(t, <-sent)
		go func() { sent <- s.Send(make([]byte, 70_000)) }()
		synctest.Wait()
		c.Close()
		if err := <-sent; err == nil {
			t.Error("a message is sent although the connection has ended")
		}
	})
}

// TestGoAway fails the calls that the server will not answer.
func TestGoAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, server := connect(t)
		first, err := c.Open("/", 0, nil, func(*Stream, []byte) {})
		must.OK(t, err)
		second, err := c.Open("/", 0, nil, func(*Stream, []byte) {})
		must.OK(t, err)
		must.OK(t, server.framer.WriteGoAway(1, http2.ErrCodeNo, nil))
		<-second.Done
		if _, err := c.Open("/", 0, nil, nil); err == nil || c.Usable() || second.Err == nil {
			t.Errorf("after GOAWAY a call is opened: %v, usable %t, the second one: %v", err, c.Usable(), second.Err)
		}
		server.answer(t, 3) // it is ignored
		server.answer(t, 1)
		if <-first.Done; first.Status != "0" || first.Err != nil {
			t.Errorf("the first call has status %q, error %v", first.Status, first.Err)
		}
	})
}
