package h2

import (
	"cmp"
	"time"
)

// Limits bound what a client can make a connection hold. All are required.
type Limits struct {
	// MaxStreams is how many calls may be open at once.
	MaxStreams int
	// MaxHeaderBytes bounds the headers of a call, as 6.5.2 counts them.
	MaxHeaderBytes int
	// MaxMessageBytes bounds a request.
	MaxMessageBytes int
	// PingInterval is the least time between a client's PINGs. Three that come sooner, without an
	// answer to a call between them, end the connection.
	PingInterval time.Duration
}

// Options are what all connections of a server have in common. The caller must not change it.
type Options struct {
	Limits Limits
	// Methods are those that the [Handler] answers, at most 250.
	Methods []Method
	// Encodings are the compressions that it knows, beside none.
	Encodings []string
}

// Method is one that a [Handler] answers.
type Method struct {
	// Path is "/service/method".
	Path string
	// Streams says that a client may send any number of messages.
	Streams bool
	// Keep reports whether a call keeps a header that counts so many bytes in the list of headers.
	// Nil keeps none. The name is valid until Keep returns.
	Keep func(name []byte, size int) bool
	// MaxMessageBytes bounds a request of this method, if it is less than [Limits].MaxMessageBytes. 0 is
	// none.
	MaxMessageBytes int
	// MostKept is how many bytes a call may keep of what Keep wants, in the order in which they come.
	// 0 is all that a call may have.
	MostKept int
}

// Server makes connections. Its methods may be called concurrently.
type Server struct {
	options  Options
	known    *knownHeaders
	settings []byte   // what a connection sends first
	most     [256]int // how many bytes a message may have, by the number of its path
	accepts  string   // the value of grpc-accept-encoding
}

// NewServer returns a server.
func NewServer(o Options) *Server {
	s := &Server{options: o, known: newKnownHeaders(o.Methods), settings: appendOurSettings(nil, &o.Limits)}
	for i := range o.Methods {
		s.most[i+1] = min(cmp.Or(o.Methods[i].MaxMessageBytes, o.Limits.MaxMessageBytes), o.Limits.MaxMessageBytes)
	}
	for i, e := range o.Encodings {
		if i > 0 {
			s.accepts += ","
		}
		s.accepts += e
	}
	return s
}

// Conn is the server's side of a connection.
type Conn struct {
	server  *Server
	handler Handler
	out     []byte        // what this call of a method appends to
	now     time.Duration // that of this call of a method
	// full is how many bytes of out end this call of Feed. What messages are decompressed to lowers it.
	full int

	stage   stage
	odd     budget
	decoder decoder
	block   block
	same    sameBlock
	call    Call // what the handler is given, so that a call needs no memory of its own

	// newest is the stream that the client began last, as long as only its headers have come. All
	// others are in streams. So a call of two frames costs neither a map nor memory.
	newest  stream
	streams map[uint32]*stream
	last    uint32 // the greatest number of a stream that the client began
	// mostStreams is how many streams there were at once: the map does not shrink.
	mostStreams int
	ended       endedStreams

	receive receiving
	send    sending
	drain   draining
	pings   pings
}

// stage is what a connection waits for.
type stage byte

const (
	awaitsPreface stage = iota
	awaitsSettings
	awaitsFrames
)

// NewConn returns a connection that begins at the time now. The handler is for it alone, or may be
// called concurrently.
func (s *Server) NewConn(h Handler, now time.Duration) *Conn {
	return &Conn{
		server: s, handler: h, now: now,
		odd:     newBudget(now),
		decoder: newDecoder(s.known, s.options.Limits.MaxHeaderBytes),
		receive: newReceiving(),
		send:    newSending(),
	}
}

// Start appends what a connection sends first. It need not wait for the client's preface (3.4), and
// clients of gRPC wait for it before their first call.
func (c *Conn) Start(out []byte) []byte { return append(out, c.server.settings...) }

// A call of Feed returns after framesAtOnce frames, blocksAtOnce bytes of header blocks, each of which
// may be a field, or once it has appended outputAtOnce bytes: others wait for the processor, and what was
// appended should go out. Two bytes that messages were decompressed to count as one that was appended.
const (
	framesAtOnce = 256
	blocksAtOnce = 8 << 10
	outputAtOnce = 16 << 10
)

// Feed takes in what the client sent, and appends what it is to get. It takes used bytes of in. The
// rest must come again, before more: more says that whole frames are among it, otherwise it is the
// beginning of one. After an error, the connection must end; what was appended is still to be sent.
//
// Times must not go backwards.
func (c *Conn) Feed(out, in []byte, now time.Duration) (appended []byte, used int, more bool, err error) {
	c.out, c.now = out, now
	used, more, err = c.feed(in)
	appended, c.out = c.out, nil
	return appended, used, more, err
}

func (c *Conn) feed(in []byte) (used int, more bool, err error) {
	if c.stage == awaitsPreface {
		n := min(len(in), len(Preface))
		if string(in[:n]) != Preface[:n] {
			return 0, false, &ConnError{CodeProtocol, "no HTTP/2 preface"}
		}
		if n < len(Preface) {
			return 0, false, nil
		}
		used, c.stage = n, awaitsSettings
	}
	blocks := 0
	c.full = len(c.out) + outputAtOnce
	for frames := 0; len(in)-used >= frameHeaderBytes; frames++ {
		n := frameBytes(in[used:])
		if n > maxFrameBytes {
			return used, false, &ConnError{CodeFrameSize, "a frame of more than 16 KiB"}
		}
		if n += frameHeaderBytes; len(in)-used < n {
			break
		}
		if frames == framesAtOnce || len(c.out) >= c.full || blocks >= blocksAtOnce {
			return used, true, nil
		}
		f := parseFrame(in[used : used+n])
		if f.frameType == frameHeaders || f.frameType == frameContinuation {
			blocks += len(f.payload)
		}
		used += n
		if err := c.receiveFrame(&f); err != nil {
			return used, false, err
		}
		if c.odd.exceeded(c.now) {
			return used, false, &ConnError{CodeEnhanceYourCalm, "too many frames that ask for nothing, or calls that had to be reset"}
		}
	}
	return used, false, nil
}

// receiveFrame takes in a frame. An error ends the connection.
func (c *Conn) receiveFrame(f *frame) error {
	if c.stage == awaitsSettings {
		if f.frameType != frameSettings || f.has(flagAck) {
			return &ConnError{CodeProtocol, "the first frame is no SETTINGS"} // 3.4
		}
		c.stage = awaitsFrames
	}
	if c.block.stream != 0 && (f.frameType != frameContinuation || f.stream != c.block.stream) {
		return &ConnError{CodeProtocol, "a frame within a header block"} // 4.3
	}
	switch f.frameType {
	case frameData:
		return c.receiveData(f)
	case frameHeaders:
		return c.receiveHeaders(f)
	case frameContinuation:
		return c.receiveContinuation(f)
	case frameRSTStream:
		return c.receiveReset(f)
	case frameWindowUpdate:
		c.odd.left--
		return c.receiveWindowUpdate(f)
	case frameSettings:
		return c.receiveSettings(f)
	case framePushPromise:
		return &ConnError{CodeProtocol, "PUSH_PROMISE of a client"} // 8.4
	case framePing:
		return c.receivePing(f)
	case frameGoAway:
		c.odd.left--
		return checkGoAway(f) // it changes nothing: a client begins streams as it likes
	case framePriority:
		c.odd.left--
		return c.receivePriority(f)
	default:
		c.odd.left-- // 5.5: ignored
		return nil
	}
}

func checkGoAway(f *frame) error {
	switch {
	case f.stream != 0:
		return &ConnError{CodeProtocol, "GOAWAY on a stream"}
	case len(f.payload) < 8:
		return &ConnError{CodeFrameSize, "a GOAWAY of less than 8 bytes"}
	}
	return nil
}

// receivePriority ignores a deprecated frame (5.3.2, 6.3).
func (c *Conn) receivePriority(f *frame) error {
	switch {
	case f.stream == 0:
		return &ConnError{CodeProtocol, "PRIORITY on no stream"}
	case len(f.payload) != priorityBytes:
		c.resetFault(f.stream, CodeFrameSize)
	case dependsOnItself(f.payload, f.stream):
		c.resetFault(f.stream, CodeProtocol)
	}
	return nil
}

// GoAway appends the end of a connection, for the error of a call of Feed.
func (c *Conn) GoAway(out []byte, err *ConnError) []byte {
	return appendGoAway(out, c.last, err.Code, err.Reason)
}

// Close cancels the calls that were to be answered later. Nothing else may be called after it, except that
// it may be called again if a [Later] panicked, for the others.
func (c *Conn) Close() {
	c.send.waiting = nil
	for id, s := range c.streams {
		later := s.later
		delete(c.streams, id)
		s.free()
		if later != nil {
			later.Cancel()
		}
	}
}

// Begun reports whether the client's first SETTINGS have come.
func (c *Conn) Begun() bool { return c.stage == awaitsFrames }
