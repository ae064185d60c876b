package builtin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// outcome is what a client receives on a stream.
type outcome struct {
	headers  []string // sorted
	body     []byte
	trailers []string // sorted; in Trailers-Only they are headers
	end      int      // the step of END_STREAM, or -1
	resets   []string
	last     int // the last step with a frame
}

// describe describes the reply to r, which is nil if the script has no headers of the stream.
func (o *outcome) describe(r *request) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	for _, f := range o.headers {
		add("%.300s", strconv.QuoteToASCII(strings.ReplaceAll(f, "%C2%A0", " "))) // protobuf's errors have either
	}
	switch n := len(o.body); {
	case n > 500: // of reflection, whose answers depend on the version of Envoy's API
		add("long body")
	case n > 0:
		add("body %+q", o.body)
	}
	for _, f := range o.trailers {
		add("%.300s", strconv.QuoteToASCII(strings.ReplaceAll(f, "%C2%A0", " ")))
	}
	switch {
	case o.end >= 0 && r != nil && r.ended:
		add("ends %d steps after the request", o.end-r.endsAt)
	case o.end >= 0:
		add("ends before the request")
	}
	for _, code := range o.resets {
		add("reset %s", code)
	}
	return strings.Join(parts, " ")
}

// player is a transport with the client of a script.
type player struct {
	transport.Transport
	metrics  *telemetry.Metrics
	listener *oneListener
	conn     net.Conn
	queue    chan []byte
	done     sync.WaitGroup

	mu   sync.Mutex
	came []byte
	over bool // the server has closed the connection
	deaf bool // the client has stopped reading

	frames  *http2.Framer // reads the received bytes
	read    bytes.Buffer
	streams map[uint32]*outcome
	events  []event // acknowledgements of PING and SETTINGS
	goAway  *http2.GoAwayFrame
	reason  string // of goAway
	ended   int    // the step at which the connection was closed, or -1
}

// event is what the client receives on the connection in a step.
type event struct {
	at   int
	text string
}

// oneListener accepts one connection.
type oneListener struct {
	conn chan net.Conn
	done chan struct{}
	once sync.Once
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *oneListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *oneListener) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// newPlayer starts a transport and connects to it. It must be called in a synctest bubble.
func newPlayer(t *testing.T, limits transport.Limits, creds credentials.TransportCredentials) *player {
	t.Helper()
	limits = fillLimits(limits)
	s := service(t, answer.Settings{Bounds: answer.Bounds{MessageBytes: limits.MaxMessageBytes}}, scriptRules)
	config := transport.Config{Limits: limits, Handler: answer.NewHandler(s, zap.NewNop(), nil, false), Creds: creds}
	p := &player{
		metrics:  s.Metrics(),
		listener: &oneListener{conn: make(chan net.Conn, 1), done: make(chan struct{})},
		queue:    make(chan []byte, 1<<10), streams: map[uint32]*outcome{}, ended: -1,
	}
	p.Transport = start(config)
	client, conn := net.Pipe()
	p.conn = client
	p.listener.conn <- conn
	p.done.Go(func() { _ = p.Serve(p.listener) })
	p.done.Go(func() {
		for b := range p.queue {
			_, _ = client.Write(b) // fails after the end
		}
	})
	p.done.Go(func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			p.mu.Lock()
			p.came = append(p.came, buffer[:n]...)
			p.over = p.over || err != nil
			deaf := p.deaf
			p.mu.Unlock()
			if err != nil || deaf {
				return
			}
		}
	})
	p.frames = http2.NewFramer(nil, &p.read)
	p.frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return p
}

// stop closes the connection and stops the transport.
func (p *player) stop() {
	close(p.queue)
	_ = p.conn.Close()
	p.Stop()
	p.done.Wait()
}

// recordFrames records the frames of a step.
func (p *player) recordFrames(t *testing.T, at int) {
	t.Helper()
	p.mu.Lock()
	p.read.Write(p.came)
	p.came = p.came[:0]
	over := p.over
	p.mu.Unlock()
	for p.read.Len() > 0 {
		f, err := p.frames.ReadFrame()
		if errors.Is(err, io.ErrUnexpectedEOF) && over {
			break
		}
		if err != nil {
			t.Fatalf("x/net rejects the output of the transport: %v", err)
		}
		p.recordFrame(f, at)
	}
	if over && p.ended < 0 {
		p.ended = at
	}
}

func (p *player) recordFrame(f http2.Frame, at int) {
	id := f.Header().StreamID
	o := p.streams[id]
	if o == nil && id != 0 && f.Header().Type != http2.FrameWindowUpdate {
		o = &outcome{end: -1}
		p.streams[id] = o
	}
	if o != nil {
		o.last = at
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		to := &o.headers
		if len(o.headers) > 0 {
			to = &o.trailers
		}
		for _, h := range f.Fields {
			*to = append(*to, h.Name+"="+h.Value)
		}
		slices.Sort(*to)
		if f.StreamEnded() {
			o.end = at
		}
	case *http2.DataFrame:
		o.body = append(o.body, f.Data()...)
		if f.StreamEnded() {
			o.end = at
		}
	case *http2.RSTStreamFrame:
		o.resets = append(o.resets, f.ErrCode.String())
	case *http2.PingFrame:
		if f.IsAck() {
			p.events = append(p.events, event{at, fmt.Sprintf("PING %q", f.Data)})
		}
	case *http2.SettingsFrame:
		if f.IsAck() {
			p.events = append(p.events, event{at, "SETTINGS"})
		}
	case *http2.GoAwayFrame:
		p.goAway, p.reason = f, string(f.DebugData())
	}
}
