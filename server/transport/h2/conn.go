package h2

import (
	"time"
)

// Server creates connections. Its methods may be called concurrently.
type Server struct {
	options    Options
	known      *knownHeaders
	settings   []byte   // the first bytes of a connection
	maxMessage [256]int // size of the largest message, by path number
}

// Conn is the server side of a connection.
type Conn struct {
	server  *Server
	handler Handler
	out     []byte        // output of the current method call
	now     time.Duration // time of the current method call
	// outputLimit is the length of out at which the current Feed returns. Chunks of messages lower
	// it.
	outputLimit int

	stage     stage
	glitches  glitchBudget
	decoder   decoder
	block     block
	lastBlock lastBlock
	call      Call // passed to the handler, so that a call allocates none

	// newest is the newest stream, as long as only its headers were received. All others are in
	// streams. So a call that consists of two frames needs no map entry and no allocation.
	newest     stream
	streams    map[uint32]*stream
	lastStream uint32 // the highest number of a client's stream
	// peakStreams is the largest number of concurrent streams so far: a map does not shrink.
	peakStreams   int
	closedStreams closedStreams

	receive   receiving
	send      sending
	drain     draining
	gotGoAway bool
	pings     pings
}

// stage is the kind of input that a connection expects.
type stage byte

const (
	awaitsPreface stage = iota
	awaitsSettings
	awaitsFrames
)

// stream is a call that is not answered yet (5.1).
type stream struct {
	id    uint32
	state streamState
	// path is the number of a known path, or 0.
	path byte
	// httpStatus is the status of a request that is not gRPC, or 0. It is sent at the end of the
	// request, whose content is ignored.
	httpStatus uint16

	receiveWindow int64 // bytes that the client may send; can become negative (6.9.2)
	sendWindow    int64 // bytes that we may send

	length, received int64         // content-length or -1, and the bytes of DATA so far
	requestStart     time.Duration // for the timeout of incomplete requests
	deadline         time.Duration // if timed
	timed            bool
	kept             *kept

	// body is the data of a request that consists of several frames.
	body []byte
	slot slotState

	pending   PendingCall
	streaming *streaming // nil if pending is not a StreamingCall
	// unsent is a reply that waits for a window; its first sent bytes were sent.
	unsent      []byte
	sent        int
	unsentSince time.Duration // beginning of the wait
}

type streamState byte

const (
	streamFree    streamState = iota
	streamOpen                // its request is incomplete
	streamWorking             // it will be answered later
)

// closedStreams remembers the most recently closed streams.
type closedStreams struct {
	ring         [64]uint32 // the number, and endStreamBit if the client had ended the stream
	next         int
	openByClient int // number of streams that we closed and the client has not ended
}

// streaming is the additional state of a StreamingCall's stream.
type streaming struct {
	StreamingCall
	wantsMessage bool // a message was requested
	requestDone  bool // further messages are dropped: RequestEnded was called, or the call answered
	headerSent   bool
	finished     bool
	trailers     []byte // header block, once finished

	chunks      chunks // chunks of a ChunkedCall
	mark        uint32 // the newest mark; see [Conn.Mark]
	markPending bool   // the mark's PING was not sent
}

// slotState is the state of a stream with respect to the slots for large requests; see
// streamWindow.
type slotState byte

const (
	slotNone slotState = iota
	slotWaiting
	slotAcquired
)

// receiving is the receiving side of flow control.
type receiving struct {
	// settingsAcked is true when the client has acknowledged our SETTINGS. Until then a client may
	// use HTTP/2's default window on each stream, but the total is limited to twice that.
	settingsAcked bool
	initial       int64 // window of a new stream
	window        int64 // window of the connection
	sinceUpdate   int64 // bytes received since the last WINDOW_UPDATE

	// buffered is the memory of incomplete requests and headers.
	buffered int
	// bodyBytes is the number of bytes in incomplete requests. Flow control uses it instead of
	// their memory.
	bodyBytes int

	usedSlots int       // number of streams with a slot
	slotQueue []*stream // streams that wait for one
}

// sending is the sending side of flow control.
type sending struct {
	initial int64 // window of a new stream
	window  int64 // window of the connection

	queue       []*stream // replies that wait for a window, the oldest first
	queuedBytes int       // their memory
}

// block is the header block that is being received (4.3).
type block struct {
	stream uint32 // 0 if none
	kind   blockKind
	end    bool // END_STREAM
	// partialField is an incomplete field. skip is how many bytes of a long string are still to be skipped.
	partialField []byte
	length       int // number of bytes so far
	since        time.Duration
	counted      int // bytes of partialField that are counted as buffered
	skip         int
	headers      requestHeaders
}

// blockKind determines what happens with a decoded block.
type blockKind byte

const (
	blockRequest      blockKind = iota
	blockTrailers               // trailers of an open stream
	blockClosedStream           // headers or trailers of a stream that we have closed
)

// draining is the state of a graceful close, in two steps (6.8). The first GOAWAY asks the client
// to open no more streams. The second, which names the last stream, is sent when the client
// acknowledges a PING that followed the first, or after drainPingTimeout: until then the client may
// have opened streams.
type draining struct {
	step  drainStep
	since time.Duration
	// reason is the debug data of GOAWAY, as in grpc-go.
	reason string
	last   uint32 // in drainFinal: higher streams are ignored
}

type drainStep byte

const (
	drainNone drainStep = iota
	drainNotified
	drainFinal
)

// pings counts PINGs that come too soon, as grpc-go does, and our own PINGs that are not
// acknowledged.
type pings struct {
	lastAt   time.Duration // time of the last PING
	received bool
	strikes  int // since the last answer to a call
	// answered is true if a call was answered since the last PING: the next PING is not too soon.
	answered bool
	unacked  int // number of our PINGs
}
