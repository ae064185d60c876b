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

// TestLargeCompressedRequestsTakeTickets has all tickets taken: a small compressed request is answered, and a
// large one waits.
func TestLargeCompressedRequestsTakeTickets(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s)
	c, neighbour := r.rawClient(t), r.rawClient(t)
	w, ok := r.grpc.(*Transport)
	if !ok {
		t.Fatal("this is not the built-in transport")
	}
	for range cap(w.tokens) {
		w.tokens <- struct{}{}
	}
	large := simpleRequest()
	large.GetDescriptors()[0].GetEntries()[0].Value = strings.Repeat("x", 1<<20)
	c.zips(marshal(t, large))
	over := make(chan string, 1)
	go func() { over <- c.ends(1)[1] }()
	neighbour.zips(marshal(t, simpleRequest()))
	if got := neighbour.ends(1)[1]; got != "0" {
		t.Errorf("a small request ends with %s", got)
	}
	select {
	case got := <-over:
		t.Errorf("a large request ends with %s though there is no ticket", got)
	default:
	}
	for range cap(w.tokens) {
		<-w.tokens
	}
	if got := <-over; got != "0" {
		t.Errorf("a large request ends with %s", got)
	}
	await(t, "no ticket is held", func() bool { return len(w.tokens) == 0 })
	await(t, "nothing is counted", func() bool { return w.buffered.bytes.Load() == 0 })
}

// TestInflatedBytesAreCounted looks at what a connection counts while a message is inflated, and has the one
// that holds the most closed for it.
func TestInflatedBytesAreCounted(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	w := New(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false)})
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := newConnection(w, ours)
	w.conns[c] = struct{}{}
	w.buffered.bytes.Add(maxBuffered - 1<<20) // what others hold
	z, err := c.decompressLocked(zipped(make([]byte, 3<<20)), 4<<20)
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
		t.Errorf("%d tickets are held in the end", len(w.tokens))
	}
}

// TestAMessageThatIsNoGzipIsNoEnd has a stream's request end right after a message that cannot be inflated: its
// handler must not take that for the end of what was said.
func TestAMessageThatIsNoGzipIsNoEnd(t *testing.T) {
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
