package builtin

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// concurrentWriter is a TLS connection on which the reader writes, such as the answer to a
// KeyUpdate, concurrently with a batch.
type concurrentWriter struct {
	net.Conn
	beside func()
}

func (b concurrentWriter) Write(p []byte) (int, error) {
	b.beside()
	return len(p), nil
}

// TestWritesOutsideBatchesAreCounted has a reader's write wait for the client, beginning during a
// flusher's batch. The connection is one of stalledWriters exactly as long as that write waits.
func TestWritesOutsideBatchesAreCounted(t *testing.T) {
	s := service(t, answer.Settings{}, oneRule)
	w := New(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false)})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer l.Close()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	must.OK(t, err)
	defer client.Close()
	conn, err := l.Accept()
	must.OK(t, err)
	c := newConnection(w, conn)
	waiting := func() int {
		w.stalled.mu.Lock()
		defer w.stalled.mu.Unlock()
		return len(w.stalled.conns)
	}
	sent := bytes.Repeat([]byte("0123456789abcde"), 2<<20) // more than Linux buffers for a socket
	wrote := make(chan error, 1)
	c.mu.Lock()
	c.conn = concurrentWriter{c.raw, func() {
		go func() {
			_, err := c.raw.Write(sent)
			wrote <- errors.Join(err, c.raw.Close())
		}()
		await(t, "the reader's write waits", func() bool { return waiting() == 1 })
	}}
	c.mu.Unlock()
	c.postCommand(commandPing)
	await(t, "the flusher has finished", func() bool {
		c.mailbox.Lock()
		defer c.mailbox.Unlock()
		return !c.mailbox.flushing
	})
	if n := waiting(); n != 1 {
		t.Errorf("%d connections wait for their clients, want 1", n)
	}
	got, err := io.ReadAll(client)
	if err := errors.Join(err, <-wrote); err != nil || len(got) != len(sent) {
		t.Errorf("received %d bytes of %d: %v", len(got), len(sent), err)
	}
	if n := waiting(); n != 0 {
		t.Errorf("%d connections wait for their clients in the end, want 0", n)
	}
}

// TestWaitingForLockNeedsNoToken has a flusher wait for a client that does not read, while the
// reader needs a token.
func TestWaitingForLockNeedsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service(t, answer.Settings{}, oneRule)
		w := New(transport.Config{Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false)})
		ours, theirs := net.Pipe()
		c := newConnection(w, ours)
		c.conn = c.raw
		for range runtime.GOMAXPROCS(0) {
			w.Tokens.AcquireCall()
		}
		c.mu.Lock()
		over := make(chan struct{})
		go func() {
			c.processInput(nil, true)
			close(over)
		}()
		synctest.Wait()
		w.Tokens.ReleaseCall() // the reader gets it
		w.Tokens.AcquireCall() // and has released it
		c.mu.Unlock()
		for range runtime.GOMAXPROCS(0) {
			w.Tokens.ReleaseCall()
		}
		<-over
		if n := w.tokensInUse(); n != 0 {
			t.Errorf("%d tokens are in use in the end", n)
		}
		_, _ = ours.Close(), theirs.Close()
	})
}
