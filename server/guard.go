package server

import (
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
)

// errMisconduct ends a connection.
var errMisconduct = errors.New("the connection asks for too little with too many frames, or holds too much of requests without an end")

// What a connection may send that asks for nothing, as nghttp2 counts "glitches":
// so many frames at once, more with time, and more with each call that is answered.
// An Envoy sends about one window update for thousands of calls, and gRPC clients
// that measure the bandwidth a ping and a few updates for each answer.
const (
	glitchesAtOnce    = 1000
	glitchesPerSecond = 33
	glitchesPerAnswer = 10
)

// smallData is the size below which a DATA frame that does not end its stream is a
// glitch: kept apart until the last one has come, each costs more than it holds.
const smallData = 1024

// heldMessages is how many requests of the largest size may be on their way in
// pieces on one connection. Real ones come in one frame, their end with it.
const heldMessages = 64

// manyResets in what is read at once make the reader give way: of the calls that a client
// takes back, each has a goroutine by then that only finds that it is not needed. Read on
// and there are as many as streams are allowed, and all that others ask for waits behind
// them. Once is not enough, since Go's scheduler looks at who gave way now and then even
// while others wait.
const (
	manyResets = 8
	giveWay    = 2
)

// guard watches the frames that a client sends and gets, of which grpc-go limits
// neither number nor kind, and says when they are too much. A client's RST_STREAM
// never counts, it only makes the reader give way: a service that stalls for a moment
// gets one from Envoy for every call.
//
// Its methods may be called concurrently.
type guard struct {
	mu       sync.Mutex
	in, out  frames
	glitches int       // that are left
	refilled time.Time // when time last gave some
	// opened is how many header blocks have come, resets and ends how many streams the
	// client has ended: no client can end more than it began.
	opened, resets, ends uint64
	// hasty is whether what was received last held many resets. It is the reader's.
	hasty bool

	// held is how many bytes of its request each stream has sent whose end has not
	// come, all of them bytes, at most most.
	held  map[uint32]int
	bytes int
	most  int
	// over are the streams that the server ended last. What comes of their requests
	// afterwards is thrown away, so it is not held.
	over  [64]uint32
	next  int
	ended bool
}

func newGuard(maxMessageBytes int, now time.Time) *guard {
	return &guard{
		in: frames{skip: prefaceBytes}, glitches: glitchesAtOnce, refilled: now, most: heldMessages * maxMessageBytes,
	}
}

// received looks at what the client sent, and reports whether all is well.
func (g *guard) received(p []byte, now func() time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.resets
	for rest, ok := g.in.next(p); ok; rest, ok = g.in.next(rest) {
		f := &g.in
		end := f.flags()&flagEndStream != 0
		switch f.kind() {
		case frameHeaders:
			g.opened++
		case frameRSTStream:
			end = false
			g.forgetLocked(f.stream())
			if g.resets++; g.resets > g.opened {
				g.glitches--
			}
		case frameData:
			if end {
				break
			}
			g.holdLocked(f.stream(), f.length())
			if f.length() < smallData {
				g.glitches--
			}
		default:
			end = false
			g.glitches--
		}
		if end {
			g.forgetLocked(f.stream())
			if g.ends++; g.ends > g.opened {
				g.glitches--
			}
		}
	}
	g.hasty = g.resets-before >= manyResets
	if g.glitches < 0 {
		g.refillLocked(now())
	}
	g.ended = g.ended || g.glitches < 0 || g.bytes > g.most
	return !g.ended
}

// sent looks at what the server answers.
func (g *guard) sent(p []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for rest, ok := g.out.next(p); ok; rest, ok = g.out.next(rest) {
		f := &g.out
		switch f.kind() {
		case frameHeaders:
			if f.flags()&flagEndStream == 0 {
				continue
			}
			g.glitches = min(glitchesAtOnce, g.glitches+glitchesPerAnswer)
		case frameRSTStream:
			// A deadline that passed, or an answer before the request's end, is no fault
			// of the client. All else is: a stream too many, headers too large, a broken
			// frame by which it makes us reset.
			if c := f.code(); c != codeCancel && c != codeNo {
				g.glitches--
			}
		default:
			continue
		}
		g.forgetLocked(f.stream())
		g.over[g.next%len(g.over)] = f.stream()
		g.next++
	}
}

func (g *guard) holdLocked(stream uint32, bytes int) {
	for _, id := range g.over {
		if id == stream {
			return
		}
	}
	if g.held == nil {
		g.held = make(map[uint32]int)
	}
	g.held[stream] += bytes
	g.bytes += bytes
}

func (g *guard) forgetLocked(stream uint32) {
	if len(g.held) == 0 {
		return
	}
	g.bytes -= g.held[stream]
	delete(g.held, stream)
}

// refillLocked gives what time has given since it last did.
func (g *guard) refillLocked(now time.Time) {
	more := int(min(now.Sub(g.refilled), time.Minute).Seconds() * glitchesPerSecond)
	if more > 0 {
		g.refilled = now
		g.glitches = min(glitchesAtOnce, g.glitches+more)
	}
}

// frames finds the frames in what goes one way over a connection, in pieces of any
// size. The zero value begins with a frame.
type frames struct {
	head [13]byte // a frame's header, and the code of an RST_STREAM
	have int
	skip int
}

// What RFC 9113 says, as far as the guard needs it: section 3.4, 4.1, 6, 7.
const (
	prefaceBytes = 24
	frameHeader  = 9

	frameData      = 0
	frameHeaders   = 1
	frameRSTStream = 3

	flagEndStream = 1

	codeNo     = 0
	codeCancel = 8
)

// next looks for the end of a frame's header in p and reports whether one is there.
// The frame is then f's, until the next call with rest.
func (f *frames) next(p []byte) (rest []byte, ok bool) {
	if f.have == f.need() {
		f.have = 0
	}
	n := min(f.skip, len(p))
	f.skip -= n
	p = p[n:]
	for len(p) > 0 {
		n := copy(f.head[f.have:f.need()], p)
		f.have += n
		p = p[n:]
		if f.have == f.need() {
			f.skip = f.length() - (f.have - frameHeader)
			return p, true
		}
	}
	return nil, false
}

// need is how much of the frame must be there to know it.
func (f *frames) need() int {
	if f.have >= frameHeader && f.kind() == frameRSTStream && f.length() == 4 {
		return len(f.head)
	}
	return frameHeader
}

func (f *frames) length() int    { return int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2]) }
func (f *frames) kind() byte     { return f.head[3] }
func (f *frames) flags() byte    { return f.head[4] }
func (f *frames) stream() uint32 { return binary.BigEndian.Uint32(f.head[5:]) & (1<<31 - 1) }

// code is meaningful for an RST_STREAM.
func (f *frames) code() uint32 { return binary.BigEndian.Uint32(f.head[frameHeader:]) }

// guardedConn ends a connection that its guard does not like.
type guardedConn struct {
	net.Conn
	guard  *guard
	ended  prometheus.Counter
	logger *zap.Logger
}

func (c *guardedConn) Read(p []byte) (int, error) {
	if c.guard.hasty {
		for range giveWay {
			runtime.Gosched()
		}
	}
	n, err := c.Conn.Read(p)
	if n > 0 && !c.guard.received(p[:n], time.Now) { //nolint:forbidigo // asked for only when nothing is left
		c.ended.Inc()
		// Whoever the client is, it can make as many of these lines as it likes.
		c.logger.Debug("connection ended", zap.Stringer("peer", c.RemoteAddr()), zap.Error(errMisconduct))
		return 0, errMisconduct
	}
	return n, err
}

func (c *guardedConn) Write(p []byte) (int, error) {
	c.guard.sent(p)
	return c.Conn.Write(p)
}

// guardedCreds have each connection guarded, within TLS if there is any.
type guardedCreds struct {
	credentials.TransportCredentials
	maxMessageBytes int
	ended           prometheus.Counter
	logger          *zap.Logger
}

// ServerHandshake implements [credentials.TransportCredentials].
func (g guardedCreds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	guard := newGuard(g.maxMessageBytes, time.Now()) //nolint:forbidigo // connections begin when they like
	return &guardedConn{Conn: conn, guard: guard, ended: g.ended, logger: g.logger}, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (g guardedCreds) Clone() credentials.TransportCredentials {
	g.TransportCredentials = g.TransportCredentials.Clone()
	return g
}
