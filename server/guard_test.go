package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// wire writes frames as a client and a server send them.
type wire struct {
	bytes.Buffer
	*http2.Framer
}

func newWire() *wire {
	w := new(wire)
	w.Framer = http2.NewFramer(&w.Buffer, nil)
	w.AllowIllegalWrites = true
	return w
}

// conversation is a client and a server with a guard between them.
type conversation struct {
	t              *testing.T
	guard          *guard
	client, server *wire
	now            time.Time
}

func converse(t *testing.T, maxMessageBytes int) *conversation {
	t.Helper()
	start := time.Unix(1e9, 0)
	c := &conversation{t: t, guard: newGuard(maxMessageBytes, start), client: newWire(), server: newWire(), now: start}
	c.client.WriteString(http2.ClientPreface)
	return c
}

// well reports whether the guard lets pass what was written since it last looked.
func (c *conversation) well() bool {
	c.guard.sent(c.server.Next(c.server.Len()))
	return c.guard.received(c.client.Next(c.client.Len()), func() time.Time { return c.now })
}

// goes fails the test if writing fails.
func (c *conversation) goes(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *conversation) begin(stream uint32) {
	c.goes(c.client.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: []byte{1}}))
}

// answer is that of a call: headers, data, trailers.
func (c *conversation) answer(stream uint32) {
	c.goes(c.server.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: []byte{1}}))
	c.goes(c.server.WriteData(stream, false, []byte("reply")))
	c.goes(c.server.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: true, BlockFragment: []byte{1}}))
}

// TestGuardLetsOrdinaryClientsPass has clients do what real ones do, for very long and
// without any time for the guard to forget.
func TestGuardLetsOrdinaryClientsPass(t *testing.T) {
	for name, call := range map[string]func(c *conversation, stream uint32){
		"calls": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.goes(c.client.WriteData(stream, true, []byte("request")))
			c.answer(stream)
		},
		"a ping and window updates for each answer": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.goes(c.client.WriteData(stream, true, []byte("request")))
			c.answer(stream)
			c.goes(c.client.WriteWindowUpdate(0, 100))
			c.goes(c.client.WriteWindowUpdate(stream, 100))
			c.goes(c.client.WritePing(false, [8]byte{}))
			c.goes(c.client.WritePing(true, [8]byte{}))
		},
		"an end in a frame of its own": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.goes(c.client.WriteData(stream, false, []byte("request")))
			c.goes(c.client.WriteData(stream, true, nil))
			c.answer(stream)
		},
		"calls that Envoy gives up": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.goes(c.client.WriteData(stream, true, []byte("request")))
			c.goes(c.client.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"calls given up before they are whole": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.goes(c.client.WriteData(stream, false, make([]byte, 1024)))
			c.goes(c.client.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"calls that are answered too late": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.goes(c.client.WriteData(stream, true, []byte("request")))
			c.goes(c.server.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"requests too large, refused before they are whole": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.goes(c.client.WriteData(stream, false, make([]byte, 2000)))
			if !c.well() {
				c.t.Fatal("ended")
			}
			c.goes(c.server.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: true, BlockFragment: []byte{1}}))
			c.goes(c.server.WriteRSTStream(stream, http2.ErrCodeNo))
			if !c.well() {
				c.t.Fatal("ended")
			}
			c.goes(c.client.WriteData(stream, false, make([]byte, 2000))) // was on its way
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := converse(t, 4<<10)
			c.goes(c.client.WriteSettings())
			for i := range uint32(20_000) {
				call(c, 1+2*i)
				if !c.well() {
					t.Fatalf("the connection ended at call %d", i)
				}
			}
		})
	}
}

func TestGuardEndsFloods(t *testing.T) {
	for name, frame := range map[string]func(c *conversation, n uint32) error{
		"PING":          func(c *conversation, _ uint32) error { return c.client.WritePing(false, [8]byte{}) },
		"SETTINGS":      func(c *conversation, _ uint32) error { return c.client.WriteSettings() },
		"SETTINGS ACK":  func(c *conversation, _ uint32) error { return c.client.WriteSettingsAck() },
		"WINDOW_UPDATE": func(c *conversation, _ uint32) error { return c.client.WriteWindowUpdate(0, 1) },
		"PRIORITY":      func(c *conversation, _ uint32) error { return c.client.WritePriority(1, http2.PriorityParam{}) },
		"GOAWAY":        func(c *conversation, _ uint32) error { return c.client.WriteGoAway(0, 0, nil) },
		"unknown": func(c *conversation, n uint32) error {
			return c.client.WriteRawFrame(http2.FrameType(10+n%200), 0, 0, nil)
		},
		"empty CONTINUATION": func(c *conversation, _ uint32) error { return c.client.WriteContinuation(1, false, nil) },
		"empty DATA":         func(c *conversation, _ uint32) error { return c.client.WriteData(1, false, nil) },
		"DATA of one byte":   func(c *conversation, _ uint32) error { return c.client.WriteData(1, false, []byte{1}) },
		"the end of no stream": func(c *conversation, n uint32) error {
			return c.client.WriteData(1+2*n, true, nil)
		},
		"the reset of no stream": func(c *conversation, n uint32) error {
			return c.client.WriteRSTStream(1+2*n, http2.ErrCodeCancel)
		},
		"MadeYouReset": func(c *conversation, n uint32) error {
			c.begin(1 + 2*n)
			c.goes(c.server.WriteRSTStream(1+2*n, http2.ErrCodeProtocol))
			return nil
		},
		"more streams than allowed": func(c *conversation, n uint32) error {
			c.begin(1 + 2*n)
			c.goes(c.server.WriteRSTStream(1+2*n, http2.ErrCodeRefusedStream))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := converse(t, 64<<10)
			n := uint32(0)
			for ; n < 5000 && c.well(); n++ {
				c.goes(frame(c, n))
			}
			if n < glitchesAtOnce || n > glitchesAtOnce+10 {
				t.Errorf("the connection ended after %d frames, want about %d", n, glitchesAtOnce)
			}
			c.now = c.now.Add(time.Hour)
			c.goes(c.client.WriteSettings())
			if c.well() {
				t.Error("what was ended goes on")
			}
		})
	}
}

// TestGuardForgivesWithTime pings ten times as often as keepalive may, for a day.
func TestGuardForgivesWithTime(t *testing.T) {
	c := converse(t, 64<<10)
	for second := range 86_400 {
		c.now = c.now.Add(time.Second)
		for range 10 {
			c.goes(c.client.WritePing(false, [8]byte{}))
		}
		if !c.well() {
			t.Fatalf("the connection ended after %d s", second)
		}
	}
	for range 3 * glitchesAtOnce {
		c.goes(c.client.WritePing(false, [8]byte{}))
	}
	if c.well() {
		t.Error("a day of good conduct allows any flood")
	}
}

func TestGuardBoundsRequestsWithoutEnd(t *testing.T) {
	const message = 4 << 10
	for name, release := range map[string]func(c *conversation, stream uint32){
		"nothing":   nil,
		"their end": func(c *conversation, stream uint32) { c.goes(c.client.WriteData(stream, true, nil)) },
		"trailers": func(c *conversation, stream uint32) {
			c.goes(c.client.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: true, EndHeaders: true, BlockFragment: []byte{1}}))
		},
		"a reset":   func(c *conversation, stream uint32) { c.goes(c.client.WriteRSTStream(stream, http2.ErrCodeCancel)) },
		"an answer": func(c *conversation, stream uint32) { c.answer(stream) },
		"a reset by the server": func(c *conversation, stream uint32) {
			c.goes(c.server.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := converse(t, message)
			n := 0
			for ; n < 3*heldMessages && c.well(); n++ {
				stream := uint32(1 + 2*n)
				c.begin(stream)
				c.goes(c.client.WriteData(stream, false, make([]byte, message)))
				if !c.well() {
					break
				}
				if release != nil {
					release(c, stream)
				}
			}
			want := 3 * heldMessages
			if release == nil {
				want = heldMessages
			}
			if n != want {
				t.Errorf("the connection ended after %d requests, want %d", n, want)
			}
		})
	}
}

// TestFramesInPieces finds frames however the bytes come.
func TestFramesInPieces(t *testing.T) {
	type frame struct {
		Kind, Flags byte
		Stream      uint32
		Length      int
		Code        uint32
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	w := newWire()
	var want []frame
	for range 2000 {
		f := frame{Kind: byte(rnd.IntN(12)), Flags: byte(rnd.Uint32()), Stream: rnd.Uint32() >> 1, Length: rnd.IntN(40)}
		payload := make([]byte, f.Length)
		if f.Kind == frameRSTStream {
			f.Length, f.Code = 4, rnd.Uint32()
			payload = binary.BigEndian.AppendUint32(nil, f.Code)
		}
		if err := w.WriteRawFrame(http2.FrameType(f.Kind), http2.Flags(f.Flags), f.Stream, payload); err != nil {
			t.Fatal(err)
		}
		want = append(want, f)
	}
	var (
		got []frame
		fs  frames
	)
	for all := w.Bytes(); len(all) > 0; {
		n := min(len(all), 1+rnd.IntN(60))
		for rest, ok := fs.next(all[:n]); ok; rest, ok = fs.next(rest) {
			f := frame{fs.kind(), fs.flags(), fs.stream(), fs.length(), 0}
			if f.Kind == frameRSTStream {
				f.Code = fs.code()
			}
			got = append(got, f)
		}
		all = all[n:]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames: -want +got:\n%s", diff)
	}
}

// chunks is a connection from which each read gets one of them.
type chunks struct {
	net.Conn
	left [][]byte
}

func (c *chunks) Read(p []byte) (int, error) {
	n := copy(p, c.left[0])
	c.left = c.left[1:]
	return n, nil
}

// TestResetsMakeTheReaderGiveWay has one processor, so that what is ready to run runs
// only if the reader lets it.
func TestResetsMakeTheReaderGiveWay(t *testing.T) {
	for _, tt := range []struct {
		resets int
		want   bool
	}{{0, false}, {manyResets - 1, false}, {manyResets, true}, {200, true}} {
		c := converse(t, 64<<10)
		for i := range uint32(tt.resets) {
			c.begin(2*i + 1)
			c.goes(c.client.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		}
		next := newWire()
		c.goes(next.WritePing(false, [8]byte{}))
		conn := &guardedConn{Conn: &chunks{left: [][]byte{c.client.Bytes(), next.Bytes()}}, guard: c.guard}
		p := make([]byte, 64<<10)
		if _, err := conn.Read(p); err != nil {
			t.Fatal(err)
		}
		if c.guard.hasty != tt.want {
			t.Errorf("%d resets: hasty is %v, want %v", tt.resets, c.guard.hasty, tt.want)
		}
		processors := runtime.GOMAXPROCS(1)
		ran := make(chan struct{})
		go close(ran)
		_, err := conn.Read(p)
		select {
		case <-ran:
		default:
			if tt.want {
				t.Errorf("%d resets: the reader went on while others were ready to run", tt.resets)
			}
		}
		runtime.GOMAXPROCS(processors)
		if err != nil || c.guard.hasty {
			t.Errorf("%d resets, then none: %v, hasty is %v", tt.resets, err, c.guard.hasty)
		}
	}
}

// TestGuardAllocatesNothing of ordinary calls.
func TestGuardAllocatesNothing(t *testing.T) {
	c := converse(t, 64<<10)
	if !c.well() {
		t.Fatal("ended")
	}
	c.begin(1)
	c.goes(c.client.WriteData(1, true, make([]byte, 200)))
	c.goes(c.client.WriteWindowUpdate(0, 200))
	c.answer(1)
	in, out := c.client.Bytes(), c.server.Bytes()
	now := func() time.Time { return c.now }
	if got := testing.AllocsPerRun(1000, func() {
		c.guard.sent(out)
		c.guard.received(in, now)
	}); got != 0 {
		t.Errorf("a call allocates %v times", got)
	}
}

// TestFloodsEndOverPlainTextAndTLS has a client send what asks for nothing, over each
// kind of connection, while a neighbour calls.
func TestFloodsEndOverPlainTextAndTLS(t *testing.T) {
	ca := authority(t)
	pair := write(t, issue(t, ca, testcert.Leaf{Names: []string{host}}), ca.PEM)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			s := service(t, Settings{}, oneRule)
			var options Options
			dial := func(addr string) (net.Conn, error) { return new(net.Dialer).DialContext(t.Context(), "tcp", addr) }
			creds := insecure.NewCredentials()
			if secure {
				options.TLS = serverTLS(t, TLSOptions{Cert: pair.Cert, Key: pair.Key})
				creds = clientTLS(t, TLSOptions{CA: pair.CA})
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(ca.PEM)
				dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: host, NextProtos: []string{"h2"}}}
				dial = func(addr string) (net.Conn, error) { return dialer.DialContext(t.Context(), "tcp", addr) }
			}
			r := serve(t, s, options)
			if err := r.ask(t, creds); err != nil {
				t.Fatal(err)
			}
			conn, err := dial(r.addr["grpc"])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			w := newWire()
			w.WriteString(http2.ClientPreface)
			for range 10 * glitchesAtOnce {
				if err := w.WriteSettings(); err != nil {
					t.Fatal(err)
				}
			}
			go func() { _, _ = conn.Write(w.Bytes()) }() // it is ended meanwhile
			_, err = io.Copy(io.Discard, conn)           // until it is
			t.Logf("the connection ended: %v", err)
			if got := testutil.ToFloat64(s.metrics.EndedConnections); got != 1 {
				t.Errorf("%v connections were ended, want 1", got)
			}
			if err := r.ask(t, creds); err != nil {
				t.Errorf("a neighbour's call: %v", err)
			}
		})
	}
}
