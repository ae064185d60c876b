package h2

import (
	"cmp"
	"math"
	"time"
	"unsafe"
)

// NewServer returns a server with the given options.
func NewServer(o Options) *Server {
	s := &Server{options: o, known: newKnownHeaders(o.Methods), settings: appendOurSettings(nil, &o.Limits)}
	for i := range o.Methods {
		s.maxMessage[i+
			1] = min(cmp.Or(o.Methods[i].MaxMessageBytes, o.Limits.MaxMessageBytes), o.Limits.MaxMessageBytes)
	}
	return s
}

// NewConn returns a connection that begins at the time now. A handler that is used for several
// connections must be safe for concurrent use.
func (s *Server) NewConn(h Handler, now time.Duration) *Conn {
	return &Conn{
		server: s, handler: h, now: now,
		glitches: glitchBudget{left: maxGlitches, refilled: now, freeRefusals: maxFreeRefusals},
		decoder:  newDecoder(s.known, s.options.Limits.MaxHeaderBytes),
		receive:  receiving{initial: defaultWindow, window: connWindow},
		send:     sending{initial: defaultWindow, window: defaultWindow},
	}
}

// Start appends the first bytes of a connection, SETTINGS and WINDOW_UPDATE. They need not wait for
// the client's preface (3.4), and gRPC clients wait for them before their first call.
func (c *Conn) Start(out []byte) []byte { return append(out, c.server.settings...) }

// MaxMemoryBytes returns the upper bound of [Conn.MemoryBytes]. replies is the largest total size
// of the replies that are unsent at the same time, or of one immediate reply.
func (s *Server) MaxMemoryBytes(replies int) int {
	l := &s.options.Limits
	text := max(l.MaxHeaderBytes, minMaxString) // longest name or value
	most := connBytes + 4*tableBytes + maxCap(tableBytes/entryOverhead)*entryBytes + maxScratchBytes
	most += maxCap(maxLastBlock) + 2*maxCap(maxKeptText)
	most += maxCap(2*text + maxFrameBytes) // an incomplete header
	most += (l.MaxStreams + 1) * 2 * s.maxKeptBytes()
	most += l.MaxStreams*(streamBytes+mapEntryBytes) + 2*maxCap(l.MaxStreams)*wordBytes
	most += 2*maxCap(2*defaultWindow) + l.MaxStreams*maxCap(2*streamWindow+maxPadding) +
		maxSlots*maxCap(prefixBytes+l.MaxMessageBytes+streamWindow)
	return most + maxQueuedBytes + maxCap(replies)
}

// maxKeptBytes returns the maximum size of the headers that a call keeps, as counted in the header
// list. In memory they take at most twice as much: the list counts 32 bytes per header, the size of
// a Field, and up to half of a slice that has grown is unused.
func (s *Server) maxKeptBytes() (most int) {
	for _, m := range s.options.Methods {
		if m.KeepHeader != nil {
			most = max(most, min(cmp.Or(m.MaxKeptBytes, math.MaxInt), s.options.Limits.MaxHeaderBytes))
		}
	}
	return most
}

// maxCap returns the largest capacity of a slice that has grown to n elements by append.
func maxCap(n int) int { return n + max(n/2, 256) }

// All memory of a connection is counted by [Conn.MemoryBytes] and bounded by
// [Server.MaxMemoryBytes]. No input can exceed the bound: windows limit requests, and calls are
// refused while too many replies are queued.

// The sizes of the counted parts.
const (
	connBytes   = int(unsafe.Sizeof(Conn{}))
	streamBytes = int(unsafe.Sizeof(stream{}) + unsafe.Sizeof(streaming{}) + unsafe.Sizeof(kept{}))
	entryBytes  = int(unsafe.Sizeof(tableEntry{}))
	fieldBytes  = int(unsafe.Sizeof(Field{}))
	wordBytes   = int(unsafe.Sizeof(uintptr(0)))
	// mapEntryBytes is the size of a map entry of streams, including the same amount of unused
	// entries.
	mapEntryBytes = 2 * (2*wordBytes + 1)
)

// MemoryBytes returns the bytes that the connection uses, without those of handlers and the
// arguments of Feed.
func (c *Conn) MemoryBytes() int {
	total := connBytes + c.Buffered()
	d := &c.decoder
	h := &c.block.headers
	total += cap(d.table.bytes) + cap(d.table.entries)*entryBytes + cap(d.scratch)
	total += cap(c.lastBlock.bytes) + cap(h.path) + cap(h.encoding)
	for _, k := range [...]*kept{h.kept, c.newest.kept} {
		if k != nil {
			total += k.bytes
		}
	}
	total += len(c.streams)*streamBytes + c.peakStreams*mapEntryBytes
	return total + (cap(c.receive.slotQueue)+cap(c.send.queue))*wordBytes
}
