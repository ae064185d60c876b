package guard

import (
	"bytes"
	"cmp"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// take returns what was written since it was last called.
func (w *wire) take() []byte { return w.Next(w.Len()) }

// sink is a connection that keeps what is written, and whether it was closed.
type sink struct {
	net.Conn
	bytes.Buffer
	closed bool
}

func (s *sink) Read(p []byte) (int, error)  { return s.Buffer.Read(p) }
func (s *sink) Write(p []byte) (int, error) { return s.Buffer.Write(p) }
func (s *sink) Close() error                { s.closed = true; return nil }
func (s *sink) RemoteAddr() net.Addr        { return &net.TCPAddr{} }

// conversation is a client and a server with a guarded connection between them.
type conversation struct {
	t              *testing.T
	conn           *conn
	out            *sink
	client, server *wire
	now            time.Time
}

// newGuard returns a guard with counters of its own.
func newGuard(o Options) *Guard {
	for _, n := range []*prometheus.Counter{&o.OddActs, &o.Memory, &o.Windows} {
		*n = prometheus.NewCounter(prometheus.CounterOpts{Name: "ended_total", Help: "Connections that were closed."})
	}
	o.Logger = zap.NewNop()
	o.MaxStreams, o.HeaderListBytes = cmp.Or(o.MaxStreams, 1024), cmp.Or(o.HeaderListBytes, 16<<20)
	return New(o)
}

func converse(t *testing.T, g *Guard) *conversation {
	t.Helper()
	out := &sink{}
	c := &conversation{t: t, out: out, client: newWire(), server: newWire(), now: time.Unix(1e9, 0)}
	c.conn = g.wrap(out, c.now)
	c.client.WriteString(http2.ClientPreface)
	return c
}

// well reports whether the guard lets pass what was written since it last looked.
func (c *conversation) well() bool {
	if _, err := c.conn.Write(c.server.take()); err != nil {
		c.t.Fatal(err)
	}
	return c.conn.received(c.client.take(), func() time.Time { return c.now }) == nil
}

// mustBeWell fails the test if the guard does not let it pass.
func (c *conversation) mustBeWell() {
	c.t.Helper()
	if !c.well() {
		c.t.Fatalf("the connection was closed: %v", c.conn.ended)
	}
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

// data is what the client sends of a request.
func (c *conversation) data(stream uint32, end bool, length int) {
	c.goes(c.client.WriteData(stream, end, make([]byte, length)))
}

// answer is that of a call: headers, data, trailers.
func (c *conversation) answer(stream uint32) {
	c.goes(c.server.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: []byte{1}}))
	c.goes(c.server.WriteData(stream, false, []byte("reply")))
	c.goes(c.server.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: true, BlockFragment: []byte{1}}))
}

// plain are credentials that change nothing.
type plain struct {
	credentials.TransportCredentials
	cloned bool
}

func (plain) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return raw, nil, nil
}

func (plain) Clone() credentials.TransportCredentials { return plain{cloned: true} }

func TestClonedCredentialsGuardToo(t *testing.T) {
	g := New(Options{})
	creds, ok := g.Credentials(plain{}).Clone().(guarded)
	if !ok || creds.TransportCredentials != (plain{cloned: true}) {
		t.Fatalf("the clone is %+v", creds)
	}
	c, _, err := creds.ServerHandshake(&sink{})
	if guarded, ok := c.(*conn); err != nil || !ok || guarded.guard != g {
		t.Errorf("the clone's connection is %T, %v", c, err)
	}
}

// TestOrdinaryClientsPass has clients do what real ones do, for very long and without
// any time to refill the budget.
func TestOrdinaryClientsPass(t *testing.T) {
	for name, call := range map[string]func(c *conversation, stream uint32){
		"calls": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.data(stream, true, 200)
			c.answer(stream)
		},
		"a ping and window updates for each answer": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.data(stream, true, 200)
			c.answer(stream)
			for range 6 {
				c.goes(c.client.WriteWindowUpdate(0, 100))
				c.goes(c.client.WriteWindowUpdate(stream, 100))
			}
			c.goes(c.client.WritePing(false, [8]byte{}))
			c.goes(c.client.WritePing(true, [8]byte{}))
		},
		"the window updates of gRPC's C core, and no answer": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.goes(c.client.WriteWindowUpdate(stream, 100))
			c.data(stream, true, 200)
			c.goes(c.client.WriteWindowUpdate(0, 100))
		},
		"headers in several frames, and no answer": func(c *conversation, stream uint32) {
			c.goes(c.client.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, 2<<10)}))
			for range 3 {
				c.goes(c.client.WriteContinuation(stream, false, make([]byte, 2<<10)))
			}
			c.goes(c.client.WriteContinuation(stream, true, []byte{1}))
			c.data(stream, true, 200)
		},
		"an end in a frame of its own": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.data(stream, false, 200)
			c.data(stream, true, 0)
			c.answer(stream)
		},
		"calls that Envoy cancels": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.data(stream, true, 200)
			c.goes(c.client.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"calls cancelled before they are whole": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.data(stream, false, 1024)
			c.goes(c.client.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"calls that are answered too late": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.data(stream, true, 200)
			c.goes(c.server.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"requests too large, rejected before they are whole": func(c *conversation, stream uint32) {
			c.begin(stream)
			c.data(stream, false, 2000)
			c.mustBeWell()
			c.goes(c.server.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: true, BlockFragment: []byte{1}}))
			c.goes(c.server.WriteRSTStream(stream, http2.ErrCodeNo))
			c.mustBeWell()
			c.data(stream, false, 2000) // was on its way
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(Options{ParkedBytes: 1 << 20})
			c := converse(t, g)
			c.goes(c.client.WriteSettings())
			for i := range uint32(5000) {
				call(c, 1+2*i)
				if !c.well() {
					t.Fatalf("the connection was closed at call %d: %v", i, c.conn.ended)
				}
			}
			if n := g.parked.Load(); n != 0 {
				t.Errorf("%d bytes are held in the end, want none", n)
			}
		})
	}
}

func TestFloodsEnd(t *testing.T) {
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
			c.mustBeWell() // its credit comes before what it costs
			c.goes(c.server.WriteRSTStream(1+2*n, http2.ErrCodeProtocol))
			return nil
		},
		"more streams than allowed": func(c *conversation, n uint32) error {
			if n == 0 {
				c.goes(c.client.WriteSettingsAck())
			}
			c.begin(1 + 2*n)
			c.mustBeWell()
			c.goes(c.server.WriteRSTStream(1+2*n, http2.ErrCodeRefusedStream))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(Options{})
			c := converse(t, g)
			n := uint32(0)
			for ; n < 5000 && c.well(); n++ {
				c.goes(frame(c, n))
			}
			if n < oddActsAtOnce-10 || n > oddActsAtOnce+10 {
				t.Errorf("the connection was closed after %d frames, want about %d", n, oddActsAtOnce)
			}
			c.now = c.now.Add(time.Hour)
			c.goes(c.client.WriteSettings())
			if c.well() {
				t.Error("what was closed goes on")
			}
			if ended := testutil.ToFloat64(g.options.OddActs); ended != 1 || !c.out.closed || !errors.Is(c.conn.ended, errOddActs) {
				t.Errorf("%v connections counted, closed %v, because %v", ended, c.out.closed, c.conn.ended)
			}
		})
	}
}

// TestStreamsBeforeSettingsAreForgiven has a client open thousands of streams at once
// before it knows how many it may open, and the server reject them after it knows.
func TestStreamsBeforeSettingsAreForgiven(t *testing.T) {
	const streams = 9000
	c := converse(t, newGuard(Options{}))
	for i := range uint32(streams) {
		c.begin(1 + 2*i)
	}
	c.goes(c.client.WriteSettingsAck())
	c.mustBeWell()
	for i := range uint32(streams) {
		c.goes(c.server.WriteRSTStream(1+2*i, http2.ErrCodeRefusedStream))
	}
	c.mustBeWell()
	c.goes(c.client.WritePing(false, [8]byte{}))
	c.mustBeWell()
	n := uint32(streams)
	for ; n < streams+2*oddActsAtOnce && c.well(); n++ {
		c.begin(1 + 2*n)
		c.mustBeWell()
		c.goes(c.server.WriteRSTStream(1+2*n, http2.ErrCodeRefusedStream))
	}
	if n > streams+oddActsAtOnce {
		t.Errorf("%d streams were rejected after the client knew how many it may open", n-streams)
	}
}

// TestStreamsBeforeSettingsAreBounded has a client that never acknowledges SETTINGS.
func TestStreamsBeforeSettingsAreBounded(t *testing.T) {
	c := converse(t, newGuard(Options{}))
	n := uint32(0)
	for ; n < 20_000 && c.well(); n++ {
		c.begin(1 + 2*n)
		c.mustBeWell()
		c.goes(c.server.WriteRSTStream(1+2*n, http2.ErrCodeRefusedStream))
	}
	if n < mostUnaware || n > mostUnaware+2*oddActsAtOnce {
		t.Errorf("the connection was closed after %d streams, want %d and a little more", n, mostUnaware)
	}
}

// TestTimeRefillsTheBudget pings ten times as often as keepalive may, for a day.
func TestTimeRefillsTheBudget(t *testing.T) {
	c := converse(t, newGuard(Options{}))
	for second := range 86_400 {
		c.now = c.now.Add(time.Second)
		for range 10 {
			c.goes(c.client.WritePing(false, [8]byte{}))
		}
		if !c.well() {
			t.Fatalf("the connection was closed after %d s", second)
		}
	}
	for range 3 * oddActsAtOnce {
		c.goes(c.client.WritePing(false, [8]byte{}))
	}
	if c.well() {
		t.Error("a day of good conduct allows any flood")
	}
}

// TestOrdinaryCallsAllocateNothing of their own.
func TestOrdinaryCallsAllocateNothing(t *testing.T) {
	c := converse(t, newGuard(Options{}))
	c.mustBeWell()
	c.begin(1)
	c.data(1, true, 200)
	c.goes(c.client.WriteWindowUpdate(0, 200))
	c.answer(1)
	in, out := c.client.take(), c.server.take()
	now := func() time.Time { return c.now }
	if got := testing.AllocsPerRun(1000, func() {
		c.conn.sent(out)
		if err := c.conn.received(in, now); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("a call allocates %v times", got)
	}
}
