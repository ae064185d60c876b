package builtin

import (
	"net"
	"strings"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// TestLargeCompressedRequestsNeedToken acquires all tokens: a small compressed request is answered,
// and a large one waits.
func TestLargeCompressedRequestsNeedToken(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s)
	c, other := r.rawClient(t), r.rawClient(t)
	w, ok := r.grpc.(*Transport)
	if !ok {
		t.Fatal("this is not the built-in transport")
	}
	for range cap(w.tokens) {
		w.tokens <- struct{}{}
	}
	large := simpleRequest()
	large.GetDescriptors()[0].GetEntries()[0].Value = strings.Repeat("x", 1<<20)
	c.callCompressed(marshal(t, large))
	over := make(chan string, 1)
	go func() { over <- c.readEnds(1)[1] }()
	other.callCompressed(marshal(t, simpleRequest()))
	if got := other.readEnds(1)[1]; got != "0" {
		t.Errorf("a small request ends with %s", got)
	}
	select {
	case got := <-over:
		t.Errorf("a large request ended with %s without a token", got)
	default:
	}
	for range cap(w.tokens) {
		<-w.tokens
	}
	if got := <-over; got != "0" {
		t.Errorf("a large request ends with %s", got)
	}
	await(t, "no token is in use", func() bool { return len(w.tokens) == 0 })
	await(t, "nothing is counted", func() bool { return w.buffered.bytes.Load() == 0 })
}

// TestDecompressedBytesAreCounted verifies that a message that is being decompressed counts as
// buffered, and that the connection that buffers the most is closed for it.
func TestDecompressedBytesAreCounted(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	w := New(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false)})
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := newConnection(w, ours)
	w.conns[c] = struct{}{}
	w.buffered.bytes.Add(maxBuffered - 1<<20) // of other connections
	z, err := c.decompressLocked(gzipped(make([]byte, 3<<20)), 4<<20)
	must.OK(t, err)
	z.release()
	if why := endedBy(t, s); why["memory"] != 1 {
		t.Errorf("connections were ended by reason: %v, want one by memory", why)
	}
	c.updateBufferedLocked(0)
	if got := w.buffered.bytes.Load(); got != maxBuffered-1<<20 {
		t.Errorf("%d bytes are counted in the end, want %d", got, maxBuffered-1<<20)
	}
	c.releaseToken()
	if len(w.tokens) != 0 {
		t.Errorf("%d tokens are in use in the end", len(w.tokens))
	}
}

// TestInvalidGzipFailsOnlyTheCall ends a stream's request right after an invalid compressed
// message: the handler must get the error, not the end.
func TestInvalidGzipFailsOnlyTheCall(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	w := New(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false)})
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	b, err := newBridgedCall(newConnection(w, ours), &h2.Call{}, &bridgedMethod{}, false)
	must.OK(t, err)
	b.Receive([]byte("no gzip"), true)
	b.RequestEnded(h2.Status{})
	if _, err := b.nextMessage(); status.Code(err) != codes.Internal {
		t.Errorf("the handler gets %v, want INTERNAL", err)
	}
}
