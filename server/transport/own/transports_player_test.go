package own

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// answered is what a client gets on a stream.
type answered struct {
	headers  []string // sorted
	body     []byte
	trailers []string // sorted; in Trailers-Only they are headers
	end      int      // the step at which END_STREAM came, -1 before
	resets   []string
	last     int // the last step at which something came
}

func (o *answered) String() string {
	return fmt.Sprintf("%.300q %.200q %q, end after step %d, reset %q", o.headers, o.body, o.trailers, o.end, o.resets)
}

// field returns a header of the reply, or one of its trailers.
func (o *answered) field(name string) string {
	for _, f := range append(slices.Clone(o.headers), o.trailers...) {
		if value, ok := strings.CutPrefix(f, name+"="); ok {
			return value
		}
	}
	return ""
}

// drop removes a header of the reply with this value, if there is one.
func (o *answered) drop(field string) bool {
	is := func(f string) bool { return f == field }
	had := slices.ContainsFunc(o.headers, is) || slices.ContainsFunc(o.trailers, is)
	o.headers, o.trailers = slices.DeleteFunc(o.headers, is), slices.DeleteFunc(o.trailers, is)
	return had
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
	deaf bool // nothing more is read, but for what comes next

	frames  *http2.Framer // reads what came
	read    bytes.Buffer
	streams map[uint32]*answered
	events  []string // of the connection: PING, SETTINGS
	goAway  *http2.GoAwayFrame
	reason  string // of goAway
	ended   int    // the step at which the connection ended, -1 before
}

// oneListener has one connection.
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

// newPlayer begins a connection over a transport of its own. It must be called in a bubble of synctest.
func newPlayer(t *testing.T, name string, limits transport.Limits) *player {
	t.Helper()
	return newPlayerWith(t, name, limits, insecure.NewCredentials())
}

func newPlayerWith(t *testing.T, name string, limits transport.Limits, creds credentials.TransportCredentials) *player {
	t.Helper()
	limits = fillLimits(limits)
	s := service(t, answer.Settings{Bounds: answer.Bounds{MessageBytes: limits.MaxMessageBytes}}, duelRules)
	config := transport.Config{Limits: limits, Handler: answer.NewHandler(s, zap.NewNop(), nil, false), Creds: creds}
	p := &player{
		metrics:  s.Metrics(),
		listener: &oneListener{conn: make(chan net.Conn, 1), done: make(chan struct{})},
		queue:    make(chan []byte, 1<<10), streams: map[uint32]*answered{}, ended: -1,
	}
	p.Transport = start(name, config)
	client, conn := net.Pipe()
	p.conn = client
	p.listener.conn <- conn
	p.done.Go(func() { _ = p.Serve(p.listener) })
	p.done.Go(func() {
		for b := range p.queue {
			_, _ = client.Write(b) // after its end, the rest goes nowhere
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

// stop ends the connection and the transport.
func (p *player) stop() {
	close(p.queue)
	_ = p.conn.Close()
	p.Stop()
	p.done.Wait()
}

// look takes in what came in a step.
func (p *player) look(t *testing.T, at int) {
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
			t.Fatalf("the transport sends what x/net does not take: %v", err)
		}
		p.frame(f, at)
	}
	if over && p.ended < 0 {
		p.ended = at
	}
}

func (p *player) frame(f http2.Frame, at int) {
	id := f.Header().StreamID
	o := p.streams[id]
	if o == nil && id != 0 && f.Header().Type != http2.FrameWindowUpdate {
		o = &answered{end: -1}
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
			p.events = append(p.events, fmt.Sprintf("PING %q after step %d", f.Data, at))
		}
	case *http2.SettingsFrame:
		if f.IsAck() {
			p.events = append(p.events, fmt.Sprintf("SETTINGS after step %d", at))
		}
	case *http2.GoAwayFrame:
		p.goAway, p.reason = f, string(f.DebugData())
	}
}
