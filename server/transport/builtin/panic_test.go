package builtin

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// panicking is a completion, and a pending call, whose methods panic.
type panicking struct{}

func (panicking) sendLocked() { panic("a bug in a completion") }
func (panicking) dropLocked() {}
func (panicking) Cancel()     { panic("a bug in a pending call") }

// cancelling is a pending call that counts its cancellation.
type cancelling struct{ cancelled *int }

func (c cancelling) Cancel() { *c.cancelled++ }

// TestPanicInBatchClosesConnection has a completion panic in a batch, of the flusher or of the
// reader. The connection is closed with an internal error, and the process continues.
func TestPanicInBatchClosesConnection(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(c *connection, client *rawClient){
		"a flusher's": func(c *connection, _ *rawClient) { c.postCompletion(panicking{}) },
		"the reader's": func(c *connection, client *rawClient) {
			c.mailbox.Lock()
			c.mailbox.flushing = true // so that no flusher starts
			c.mailbox.Unlock()
			c.postCompletion(panicking{})
			client.call(nil, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := service(t, answer.Settings{}, oneRule)
			r := serve(t, s)
			client := r.rawClient(t)
			client.call(nil, 0)
			client.readEnds(1)
			_, c := r.onlyConnection(t)
			leave(c, client)
			output, _ := io.ReadAll(client.conn)
			if !bytes.Contains(output, []byte("internal error")) {
				t.Errorf("the client gets %q, want a GOAWAY", output)
			}
			wantEnded(t, r, s, "panic")
			if got := testutil.ToFloat64(s.Metrics().Panics); got != 1 {
				t.Errorf("%v panics are counted, want 1", got)
			}
			next := r.rawClient(t)
			next.call(nil, 0)
			next.readEnds(1)
		})
	}
}

// TestPanicInCancel has pending calls panic when the connection is closed. The other calls are
// canceled nevertheless, and the process continues.
func TestPanicInCancel(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	r := serve(t, s)
	client := r.rawClient(t)
	client.call(nil, 0)
	client.readEnds(1)
	w, c := r.onlyConnection(t)
	calls := newScript(t)
	calls.begin()
	for id := range uint32(20) {
		calls.addCall(2*id + 1)
	}
	cancelled := 0
	c.mu.Lock()
	c.h2 = w.h2.NewConn(pendingHandler{&cancelled}, time.Hour)
	for _, step := range calls.steps {
		if _, _, _, err := c.h2.Feed(nil, step, time.Hour); err != nil {
			t.Error(err)
		}
	}
	if c.h2.OpenStreams() != 20 {
		t.Errorf("%d calls are open, want 20", c.h2.OpenStreams())
	}
	c.mu.Unlock()
	_ = client.conn.Close()
	await(t, "the connection has ended", func() bool { return len(w.snapshotConns()) == 0 })
	if got := testutil.ToFloat64(s.Metrics().Panics); got != 10 || cancelled != 10 {
		t.Errorf("%v panics are counted and %d calls cancelled, want 10 and 10", got, cancelled)
	}
}

// pendingHandler answers each call later. Every other one panics if it is canceled.
type pendingHandler struct{ cancelled *int }

func (l pendingHandler) Call(c *h2.Call) ([]byte, h2.Status, h2.PendingCall) {
	if c.Stream%4 == 1 {
		return nil, h2.Status{}, panicking{}
	}
	return nil, h2.Status{}, cancelling(l)
}
func (pendingHandler) Open(*h2.Call) (h2.StreamingCall, h2.Status)     { return nil, h2.Status{} }
func (pendingHandler) UnknownMethod(string) h2.Status                  { return h2.Status{} }
func (pendingHandler) LimitExceeded(*h2.Call, h2.Limit, int) h2.Status { return h2.Status{} }
func (pendingHandler) Reset(uint32)                                    {}
