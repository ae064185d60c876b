package h2

import (
	"cmp"
	"math"
	"unsafe"
)

// What a connection holds is one number, [Conn.Held], with one bound, [Server.MostHeld]. Nothing a
// client sends makes it hold more: its windows bound requests, and calls are refused while too many
// replies wait.

// The sizes of what is counted.
const (
	connBytes   = int(unsafe.Sizeof(Conn{}))
	streamBytes = int(unsafe.Sizeof(stream{}) + unsafe.Sizeof(talk{}) + unsafe.Sizeof(kept{}))
	entryBytes  = int(unsafe.Sizeof(tableEntry{}))
	fieldBytes  = int(unsafe.Sizeof(Field{}))
	wordBytes   = int(unsafe.Sizeof(uintptr(0)))
	// placeBytes is what a map takes for a stream: its key and value, and as many free places.
	placeBytes = 2 * (2*wordBytes + 1)
)

// Held returns the bytes that the connection holds. What handlers hold of calls is not among them, nor
// are the bytes given to Feed and appended by it.
func (c *Conn) Held() int {
	held := connBytes + c.Parked()
	d, h := &c.decoder, &c.block.head
	held += cap(d.table.bytes) + cap(d.table.entries)*entryBytes + cap(d.scratch)
	held += cap(c.same.bytes) + cap(h.path) + cap(h.encoding)
	for _, k := range [...]*kept{h.kept, c.newest.kept} {
		if k != nil {
			held += k.bytes
		}
	}
	held += len(c.streams)*streamBytes + c.mostStreams*placeBytes
	return held + (cap(c.receive.waiting)+cap(c.send.waiting))*wordBytes
}

// MostHeld returns the most that [Conn.Held] returns, for replies of so many bytes: the largest one that
// a call is answered with at once, and all that come later or by conversations and wait at the same time.
func (s *Server) MostHeld(replies int) int {
	l := &s.options.Limits
	text := max(l.MaxHeaderBytes, leastLongest) // of a name, or a value
	most := connBytes + 4*tableBytes + grown(tableBytes/entryOverhead)*entryBytes + mostScratch
	most += grown(mostSame) + 2*grown(mostOfText)
	most += grown(2*text + maxFrameBytes) // a header that is not whole
	most += (l.MaxStreams + 1) * 2 * s.mostKept()
	most += l.MaxStreams*(streamBytes+placeBytes) + 2*grown(l.MaxStreams)*wordBytes
	most += grown(2*defaultWindow+maxFrameBytes) + l.MaxStreams*grown(2*firstWindow+mostPadding) + turnsAtOnce*grown(prefixBytes+l.MaxMessageBytes+firstWindow)
	return most + mostWaiting + grown(replies)
}

// mostKept is how many bytes of headers a call may keep, as they count in the list of headers: 32 for
// each, of which a slice that has grown may take twice as many.
func (s *Server) mostKept() (most int) {
	for _, m := range s.options.Methods {
		if m.Keep != nil {
			most = max(most, min(cmp.Or(m.MostKept, math.MaxInt), s.options.Limits.MaxHeaderBytes))
		}
	}
	return most
}

// grown is the most that a slice takes that has grown to n elements by append.
func grown(n int) int { return n + max(n/2, 256) }
