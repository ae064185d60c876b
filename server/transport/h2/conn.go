package h2

import (
	"time"
)

// Server makes connections. Its methods may be called concurrently.
type Server struct {
	options        Options
	known          *knownHeaders
	settings       []byte   // what a connection sends first
	maxMessage     [256]int // how many bytes a message may have, by the number of its path
	acceptEncoding string   // the value of grpc-accept-encoding
}

// Conn is the server's side of a connection.
type Conn struct {
	server  *Server
	handler Handler
	out     []byte        // what this call of a method appends to
	now     time.Duration // that of this call of a method
	// outputLimit is how many bytes of out end this call of Feed. What messages are decompressed to lowers it.
	outputLimit int

	stage     stage
	glitches  glitchBudget
	decoder   decoder
	block     block
	lastBlock lastBlock
	call      Call // what the handler is given, so that a call needs no memory of its own

	// newest is the stream that the client began last, as long as only its headers have come. All
	// others are in streams. So a call of two frames costs neither a map nor memory.
	newest     stream
	streams    map[uint32]*stream
	lastStream uint32 // the greatest number of a stream that the client began
	// peakStreams is how many streams there were at once: the map does not shrink.
	peakStreams   int
	closedStreams closedStreams

	receive receiving
	send    sending
	drain   draining
	// gotGoAway says that the client has sent a GOAWAY.
	gotGoAway bool
	pings     pings
}

// stage is what a connection waits for.
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
	// path is the number of a known path.
	path byte
	// httpStatus is the status of a request that is no gRPC, or 0. It is answered at its end, whatever
	// it brings until then.
	httpStatus uint16

	receiveWindow int64 // what the client may still send; negative if a setting took it (6.9.2)
	sendWindow    int64 // what we may

	length, received int64         // content-length or -1, and the DATA so far
	requestStart     time.Duration // for requests without an end
	deadline         time.Duration // if timed
	timed            bool
	encoding         string // grpc-encoding
	kept             *kept

	// body is what has come of a request in several frames.
	body []byte
	slot slotState

	pending   PendingCall
	streaming *streaming // nil if later is no conversation
	// unsent is a reply until the client gives a window for it, and sent how much of it is out.
	unsent      []byte
	sent        int
	unsentSince time.Duration // since when
}

type streamState byte

const (
	streamFree    streamState = iota
	streamOpen                // its request is on its way
	streamWorking             // it will be answered later
)

// closedStreams remembers the streams that ended last, and which of them the client had ended.
type closedStreams struct {
	ring         [64]uint32 // the number, and the first bit if the client had ended it
	next         int
	openByClient int // how many we ended before the client did, less those that it has ended since
}

// streaming is what a stream with a conversation has beside others.
type streaming struct {
	StreamingCall
	wantsMessage bool // a message was asked for
	requestDone  bool // End was called, or the call has its answer: what comes is thrown away
	headerSent   bool // the headers of the reply are out
	finished     bool
	trailers     []byte // the block, once finished

	chunks      chunks // of a conversation that is one of [Pieces]
	mark        uint32 // the newest; see [Conn.Mark]
	markPending bool   // its PING is not out
}

// slotState says whether a large request may be sent.
type slotState byte

const (
	slotNone slotState = iota
	slotWaiting
	slotAcquired
)

// receiving is what a connection has received and may receive.
type receiving struct {
	// settingsAcked says that the client has acknowledged our SETTINGS. Until it knows of them it may send
	// as much on each stream as HTTP/2 has by default, but on all of them no more than that either.
	settingsAcked bool
	initial       int64 // the window of a new stream
	window        int64 // the connection's
	sinceUpdate   int64 // what came since a WINDOW_UPDATE

	// buffered is the memory of requests and headers that are not whole.
	buffered int
	// bodyBytes is the number of bytes of DATA in requests that are not whole. Flow control counts these, and
	// not their memory.
	bodyBytes int

	usedSlots int       // how many streams have their turn
	slotQueue []*stream // for theirs
}

// sending is what a connection may send.
type sending struct {
	initial int64 // the window of a new stream
	window  int64 // the connection's

	queue       []*stream // replies that wait for a window, the oldest first
	queuedBytes int       // the memory of these
}

// block is a header block on its way (4.3).
type block struct {
	stream uint32 // 0: none
	kind   blockKind
	end    bool // END_STREAM
	// partialField is the part of a field that has not come whole, and skip how many bytes of a string
	// are thrown away.
	partialField []byte
	length       int // what came of it
	since        time.Duration
	counted      int // what of tail is counted
	skip         int
	headers      requestHeaders
}

// blockKind is what becomes of a block once it is decoded.
type blockKind byte

const (
	blockRequest      blockKind = iota
	blockTrailers               // of an open stream
	blockClosedStream           // of a stream that we have ended
)

// draining is the orderly end of a connection, in two steps (6.8). First the client is told to begin
// no more streams. It may have begun some already, so only when it answers a PING that was sent with
// it, or after drainPatience, it is told which stream was the last.
type draining struct {
	step  drainStep
	since time.Duration
	// reason is what the client is told, as by grpc-go.
	reason string
	last   uint32 // in the second step: later streams are not looked at
}

type drainStep byte

const (
	drainNone drainStep = iota
	drainNotified
	drainFinal
)

// pings counts the PINGs that come too soon, as grpc-go does, and those that the client is to acknowledge.
type pings struct {
	lastAt   time.Duration // of the last one
	received bool
	strikes  int // since the last answer to a call
	// answered says that a call was answered since the last one: the next does not count.
	answered bool
	unacked  int // number of our own PINGs that the client has not acknowledged
}
