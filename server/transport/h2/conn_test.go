package h2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

const (
	echoPath = "/test.Service/Echo"
	talkPath = "/test.Service/Talk"
)

var testLimits = Limits{MaxStreams: 100, MaxHeaderBytes: 16 << 10, MaxMessageBytes: 64 << 10}

// echo answers each call with its message. The messages "fail" and "later" request an error and a
// pending call.
type echo struct {
	calls          []Call
	messages       []string
	exceeded       []Limit
	streamingCalls []*recordedCall
	piecewise      []*chunkedCall
	cancelled      int
}

func (e *echo) Call(c *Call) ([]byte, Status, PendingCall) {
	message := string(c.Message)
	e.calls, e.messages = append(e.calls, *c), append(e.messages, message)
	switch message {
	case "fail":
		return nil, Status{Code: 3, Message: "it fails: 100 %\n"}, nil
	case "later":
		return nil, Status{}, e
	case "streaming":
		e.streamingCalls = append(e.streamingCalls, &recordedCall{echo: e, stream: c.Stream})
		return nil, Status{}, e.streamingCalls[len(e.streamingCalls)-1]
	}
	return []byte(message), Status{}, nil
}

func (e *echo) Cancel() { e.cancelled++ }

func (e *echo) UnknownMethod(path string) Status {
	return Status{Code: 12, Message: "unknown method " + path}
}

func (*echo) Reset(uint32) {}

func (e *echo) LimitExceeded(call *Call, b Limit, size int) Status {
	if call.Stream == 0 {
		panic("the call is not described")
	}
	e.exceeded = append(e.exceeded, b)
	return Status{Code: 8, Message: fmt.Sprintf("bound %d: %d bytes", b, size)}
}

// client writes frames to a connection, and parses its output with x/net.
type client struct {
	*http2.Framer // for writing
	t             testing.TB
	in            bytes.Buffer
	out           []byte
	encoder       *hpack.Encoder
	block         bytes.Buffer
	decoder       *hpack.Decoder

	conn    *Conn
	handler *echo
	now     time.Duration
	err     error
}

func newClient(tb testing.TB, options ...func(*Options)) *client {
	tb.Helper()
	o := Options{Limits: testLimits, Methods: []Method{{Path: "/test.Service/Other"}, {Path: echoPath}, {Path: talkPath, ClientStreams: true, KeepHeader: keepX}}}
	for _, change := range options {
		change(&o)
	}
	c := &client{t: tb, handler: new(echo), now: time.Hour}
	c.conn = NewServer(o).NewConn(c.handler, c.now)
	c.out = c.conn.Start(nil)
	c.Framer = http2.NewFramer(&c.in, nil)
	c.AllowIllegalWrites = true
	c.encoder = hpack.NewEncoder(&c.block)
	c.decoder = hpack.NewDecoder(4096, nil)
	c.in.WriteString(Preface)
	return c
}

// newReadyClient returns a client that has exchanged SETTINGS.
func newReadyClient(tb testing.TB, options ...func(*Options)) *client {
	tb.Helper()
	c := newClient(tb, options...)
	c.must(c.WriteSettings())
	c.must(c.WriteSettingsAck())
	c.want("SETTINGS", "WINDOW_UPDATE 0 983041", "SETTINGS ACK")
	return c
}

func (c *client) must(err error) {
	c.t.Helper()
	must.OK(c.t, err)
}

// feed feeds the connection with the written frames.
func (c *client) feed() {
	in := c.in.Bytes()
	for more := true; more && c.err == nil; {
		var used int
		c.out, used, more, c.err = c.conn.Feed(c.out, in, c.now)
		in = in[used:]
	}
	rest := append([]byte(nil), in...)
	c.in.Reset()
	c.in.Write(rest)
}

// request returns the headers of a call. more replaces or adds headers.
func request(path string, more ...string) []string {
	return append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "test", "content-type", "application/grpc", "te", "trailers"}, more...)
}

func (c *client) headers(stream uint32, end bool, fields ...string) {
	c.t.Helper()
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: end, EndHeaders: true, BlockFragment: c.encode(fields...)}))
}

func (c *client) encode(fields ...string) []byte {
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		c.must(c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(c.block.Bytes())
}

// grpcMessage returns a message with its prefix.
func grpcMessage(m string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...)
}

// call writes a complete call.
func (c *client) call(stream uint32, message string) {
	c.t.Helper()
	c.headers(stream, false, request(echoPath)...)
	c.must(c.WriteData(stream, true, grpcMessage(message)))
}

// frames returns the output since the last call of frames, a line for each frame.
func (c *client) frames() (lines []string) {
	c.t.Helper()
	c.feed()
	r := http2.NewFramer(nil, bytes.NewReader(c.out))
	c.out = nil
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return lines
		}
		line := f.Header().Type.String()
		if f.Header().StreamID != 0 {
			line += fmt.Sprintf(" %d", f.Header().StreamID)
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				line += " ACK"
			}
		case *http2.HeadersFrame:
			fields, err := c.decoder.DecodeFull(f.HeaderBlockFragment())
			c.must(err)
			for _, h := range fields {
				if h.Value != "200" && h.Value != "application/grpc" {
					line = fmt.Sprintf("%s %s=%s", line, h.Name, h.Value)
				}
			}
			if f.StreamEnded() {
				line += " END"
			}
		case *http2.DataFrame:
			if len(f.Data()) < 100 {
				line += fmt.Sprintf(" %q", f.Data())
			} else {
				line += fmt.Sprintf(" %d bytes", len(f.Data()))
			}
			if f.StreamEnded() {
				line += " END"
			}
		case *http2.RSTStreamFrame:
			line += " " + f.ErrCode.String()
		case *http2.WindowUpdateFrame:
			line = fmt.Sprintf("WINDOW_UPDATE %d %d", f.StreamID, f.Increment)
		case *http2.GoAwayFrame:
			line += strings.TrimRight(fmt.Sprintf(" %d %v %s", f.LastStreamID, f.ErrCode, f.DebugData()), " ")
		case *http2.PingFrame:
			line += fmt.Sprintf(" %q", f.Data)
			if f.IsAck() {
				line += " ACK"
			}
		}
		lines = append(lines, line)
	}
}

// want fails the test if the output is not these frames.
func (c *client) want(lines ...string) {
	c.t.Helper()
	got := c.frames()
	if c.err != nil {
		c.t.Fatalf("the connection ended: %v", c.err)
	}
	if fmt.Sprint(got) != fmt.Sprint(lines) {
		c.t.Fatalf("the client gets\n%q, want\n%q", got, lines)
	}
}

// wantError fails the test if the connection was not closed with this code.
func (c *client) wantError(code Code) {
	c.t.Helper()
	c.feed()
	e, ok := c.err.(*ConnError) //nolint:errorlint // it is never wrapped
	if !ok || e.Code != code {
		c.t.Fatalf("the connection ended with %v, want code %d", c.err, code)
	}
}

// answer returns the frames of a complete answer.
func answer(stream int, message string) []string {
	return []string{
		fmt.Sprintf("HEADERS %d", stream),
		fmt.Sprintf("DATA %d %q", stream, grpcMessage(message)),
		fmt.Sprintf("HEADERS %d grpc-status=0 END", stream),
	}
}

func TestCall(t *testing.T) {
	c := newReadyClient(t)
	for i := range 3 {
		id := 1 + 2*i
		c.call(uint32(id), "hello")
		c.want(answer(id, "hello")...)
	}
	if got := c.handler.calls[2]; got.Method != 1 || got.Stream != 5 || got.HasTimeout {
		t.Errorf("the handler gets %+v", got)
	}
	if c.conn.OpenStreams() != 0 || c.conn.Buffered() != 0 {
		t.Errorf("%d streams are open, %d bytes are buffered", c.conn.OpenStreams(), c.conn.Buffered())
	}
}

func TestFragmentedCall(t *testing.T) {
	c := newReadyClient(t)
	message := grpcMessage("hello")
	c.headers(1, false, request(echoPath)...)
	for _, b := range message[:7] {
		c.must(c.WriteData(1, false, []byte{b}))
	}
	c.headers(3, false, request(echoPath)...)
	c.must(c.WriteData(3, true, message))
	c.want(answer(3, "hello")...)
	c.must(c.WriteData(1, false, message[7:]))
	c.want()
	c.must(c.WriteData(1, true, nil))
	c.want(answer(1, "hello")...)
	if c.conn.Buffered() != 0 {
		t.Errorf("%d bytes are buffered", c.conn.Buffered())
	}
}

// TestInputSplitAnywhere feeds the same input in fragments of all sizes: the output must not
// change.
func TestInputSplitAnywhere(t *testing.T) {
	c := newClient(t)
	c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 12}))
	c.must(c.WriteSettingsAck())
	c.call(1, "hello")
	c.call(3, "a longer one, that waits")
	c.call(5, "fail")
	c.must(c.WritePing(false, [8]byte{1}))
	c.must(c.WriteWindowUpdate(3, 100))
	in := bytes.Clone(c.in.Bytes())
	c.feed()
	want := bytes.Clone(c.out)
	for piece := 1; piece < len(in); piece++ {
		other := newClient(t)
		other.in.Reset()
		for rest := in; len(rest) > 0; {
			n := min(piece, len(rest))
			other.in.Write(rest[:n])
			other.feed()
			rest = rest[n:]
		}
		if other.err != nil || !bytes.Equal(other.out, want) {
			t.Fatalf("in pieces of %d bytes: %q, %v; want %q", piece, other.out, other.err, want)
		}
	}
}

func TestPendingCalls(t *testing.T) {
	c := newReadyClient(t)
	c.call(1, "later")
	c.call(3, "later")
	c.call(5, "later")
	c.call(7, "hello")
	c.want(answer(7, "hello")...)
	c.out = c.conn.Reply(c.out, 5, []byte("at last"))
	c.out = c.conn.Fail(c.out, 1, Status{Code: 14, Message: "in vain"})
	c.want(append(answer(5, "at last"), "HEADERS 1 grpc-status=14 grpc-message=in vain END")...)
	c.must(c.WriteRSTStream(3, http2.ErrCodeCancel))
	c.want()
	if c.handler.cancelled != 1 {
		t.Errorf("%d calls were cancelled, want 1", c.handler.cancelled)
	}
	c.out = c.conn.Reply(c.out, 3, []byte("too late"))
	c.want()
}

func TestCallsDoNotAllocate(t *testing.T) {
	c := newReadyClient(t)
	c.headers(1, false, request(echoPath)...)
	c.feed()
	c.must(c.WriteData(1, true, grpcMessage("x")))
	c.feed()
	// From the second call on, all headers are in the table.
	var calls [][]byte
	for id := uint32(3); id < 300; id += 2 {
		c.headers(id, false, request(echoPath, "grpc-timeout", "20m")...)
		c.must(c.WriteData(id, true, grpcMessage("x")))
		calls = append(calls, bytes.Clone(c.in.Bytes()))
		c.in.Reset()
	}
	c.conn.handler = constant{}
	out := make([]byte, 0, 1<<10)
	if n := must.AllocsPerRun(len(calls)-1, func() {
		out, _, _, c.err = c.conn.Feed(out[:0], calls[0], c.now)
		calls = calls[1:]
	}); n != 0 || c.err != nil || !bytes.Contains(out, reply) {
		t.Errorf("a call allocates %v times, want 0, and ends with %q, %v", n, out, c.err)
	}
}

// constant answers all calls with the same reply.
type constant struct{}

func (constant) Call(*Call) ([]byte, Status, PendingCall) { return reply, Status{}, nil }
func (constant) Open(*Call) (StreamingCall, Status)       { return nil, Status{} }
func (constant) UnknownMethod(string) Status              { return Status{} }
func (constant) LimitExceeded(*Call, Limit, int) Status   { return Status{} }
func (constant) Reset(uint32)                             {}

var reply = []byte("reply")
