package builtin

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// tokensInUse returns the number of tokens that calls use.
func (t *Transport) tokensInUse() int {
	calls, _ := t.Tokens.InUse()
	return calls
}

// flooder connects and sends many calls in one write, more than one batch.
func (r *running) flooder(t *testing.T, calls int) *rawClient {
	t.Helper()
	c := r.rawClient(t)
	c.must(c.fr.WriteWindowUpdate(0, 1<<30))
	var all bytes.Buffer
	c.fr = http2.NewFramer(&all, c.conn)
	c.fr.ReadMetaHeaders = nil
	for range calls {
		c.call(nil, 0)
	}
	go func() { _, _ = c.conn.Write(all.Bytes()) }()
	return c
}

// TestBusyConnectionsWaitAndOthersDoNot takes the tokens. A busy connection then processes one
// batch, and another connection is answered as usual.
func TestBusyConnectionsWaitAndOthersDoNot(t *testing.T) {
	const calls = 5000
	r := serve(t, service(t, answer.Settings{}, oneRule))
	other := r.dial(t)
	checkOK(t, other)
	w, ok := r.grpc.(*Transport)
	if !ok {
		t.Fatal("this is not the built-in transport")
	}
	for range runtime.GOMAXPROCS(0) {
		w.Tokens.AcquireCall()
	}
	c := r.flooder(t, calls)
	answered := make(chan int)
	go func() {
		n := 0
		for n < calls {
			f, err := c.fr.ReadFrame()
			if err != nil {
				t.Error(err)
				break
			}
			if f.Header().Type == http2.FrameHeaders && f.Header().Flags.Has(http2.FlagHeadersEndStream) {
				if n++; n == 1 {
					answered <- n
				}
			}
		}
		answered <- n
	}()
	<-answered
	for range 100 {
		checkOK(t, other)
	}
	select {
	case n := <-answered:
		t.Errorf("%d calls of busy connections were answered without a token", n)
	default:
	}
	for range runtime.GOMAXPROCS(0) {
		w.Tokens.ReleaseCall()
	}
	if n := <-answered; n != calls {
		t.Errorf("%d calls were answered, want %d", n, calls)
	}
	await(t, "no token is in use", func() bool { return w.tokensInUse() == 0 })
}

// TestNotReadingConnectionHasNoToken has a connection with a token wait for its client.
func TestNotReadingConnectionHasNoToken(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	w := New(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false)})
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	c := newConnection(w, ours)
	w.Tokens.AcquireCall()
	c.hasToken.Store(true)
	c.writeStalled()
	if w.tokensInUse() != 0 || c.hasToken.Load() || len(w.stalled.conns) != 1 {
		t.Errorf("%d tokens are in use, by this connection: %v; %d wait, want 0, false, 1", w.tokensInUse(), c.hasToken.Load(), len(w.stalled.conns))
	}
	c.writeResumed()
	c.releaseToken() // at the end of its batch
	if len(w.stalled.conns) != 0 {
		t.Error("it waits in the end")
	}
}

// TestSocketReportsStalls writes more than a socket buffers. Everything arrives.
func TestSocketReportsStalls(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer l.Close()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	must.OK(t, err)
	defer client.Close()
	conn, err := l.Accept()
	must.OK(t, err)
	stalled, flowed := make(chan struct{}, 2), make(chan struct{}, 2)
	socket := newSocket(conn,
		func() { stalled <- struct{}{} }, func() { flowed <- struct{}{} })
	if newReader(socket, socket).raw == nil {
		t.Error("a connection that idles has a buffer of its own")
	}
	if n, err := socket.Write([]byte("short")); n != 5 || err != nil || len(stalled) != 0 {
		t.Errorf("a short write: %d, %v, %d stalls, want 5 bytes and no stall", n, err, len(stalled))
	}
	sent := bytes.Repeat([]byte("0123456789abcde"), 2<<20) // more than Linux buffers for a socket
	wrote := make(chan error, 1)
	go func() {
		n, err := socket.Write(sent)
		if n != len(sent) {
			t.Errorf("%d bytes were written, want %d", n, len(sent))
		}
		wrote <- errors.Join(err, socket.Close())
	}()
	<-stalled
	got, err := io.ReadAll(client)
	if err := errors.Join(err, <-wrote); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got, append([]byte("short"), sent...)) {
		t.Error("the received bytes differ from the written ones")
	}
	if len(stalled) != 0 || len(flowed) != 1 {
		t.Errorf("%d more stalls in one write, and %d ends of stalls", len(stalled), len(flowed))
	}
}

// TestTooManyNotReadingClients verifies that the one that has waited longest is closed.
func TestTooManyNotReadingClients(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	w := New(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false)})
	var conns []*connection
	for range maxStalled + 2 {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		defer ours.Close()
		c := newConnection(w, ours)
		conns = append(conns, c)
	}
	for _, c := range conns[:maxStalled] {
		w.stalled.add(c)
	}
	w.stalled.remove(conns[1])
	w.stalled.add(conns[maxStalled])
	if why := endedBy(t, s); why != nil {
		t.Errorf("%d wait, but some were ended: %v", maxStalled, why)
	}
	w.stalled.add(conns[maxStalled+1])
	if why := endedBy(t, s); why["write_timeout"] != 1 || len(w.stalled.conns) != maxStalled {
		t.Errorf("%d wait, and were ended by reason: %v, want one", len(w.stalled.conns), why)
	}
	if _, err := conns[0].raw.Write([]byte{1}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("the one that has waited for longest is written to: %v", err)
	}
}

// TestIncompleteFrames distinguishes a client that sends an incomplete frame or header block, and
// then nothing, from one whose frames are fragmented.
func TestIncompleteFrames(t *testing.T) {
	var w activity
	at := func(second int) { w.noteReceived(time.Duration(second) * time.Second) }
	at(1)
	w.noteIncompleteFrame(true, true)
	at(5)
	w.noteIncompleteFrame(true, false) // a byte more of it
	if got := time.Duration(w.incompleteFrameAt.Load()); got != time.Second {
		t.Errorf("the frame began at %v, want 1s", got)
	}
	at(9)
	w.noteIncompleteFrame(true, true) // another one
	if got := time.Duration(w.incompleteFrameAt.Load()); got != 9*time.Second {
		t.Errorf("the frame began at %v, want 9s", got)
	}
	w.noteIncompleteFrame(false, true)
	if got := w.incompleteFrameAt.Load(); got != 0 {
		t.Errorf("no frame is incomplete, but one began at %d", got)
	}

	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s)
	c := r.rawClient(t)
	own, wc := r.onlyConnection(t)
	c.must(c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block(0)}))
	await(t, "a header block has begun", func() bool { return wc.activity.headerBlockAt.Load() != 0 })
	c.must(c.fr.WriteContinuation(1, true, nil))
	await(t, "it has ended", func() bool { return wc.activity.headerBlockAt.Load() == 0 })
	c.must(c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: c.block(0)}))
	await(t, "another has begun", func() bool { return wc.activity.headerBlockAt.Load() != 0 })
	wc.checkActivity(own.Handler.Clock.Elapsed() + maxFrameTime)
	wantEnded(t, r, s, "frame_timeout")
}
