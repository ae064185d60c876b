package h2

import (
	"unsafe"
)

// What a connection holds is one number, [Conn.Held], with one bound, [Server.MostHeld]. Nothing a
// client sends makes it hold more: its windows bound requests, and calls are refused while too many
// replies wait.

// The sizes of what is counted.
const (
	connBytes   = int(unsafe.Sizeof(Conn{}))
	streamBytes = int(unsafe.Sizeof(stream{}) + unsafe.Sizeof(streaming{}) + unsafe.Sizeof(kept{}))
	entryBytes  = int(unsafe.Sizeof(tableEntry{}))
	fieldBytes  = int(unsafe.Sizeof(Field{}))
	wordBytes   = int(unsafe.Sizeof(uintptr(0)))
	// mapEntryBytes is what a map takes for a stream: its key and value, and as many free places.
	mapEntryBytes = 2 * (2*wordBytes + 1)
)

// MemoryBytes returns the bytes that the connection holds. What handlers hold of calls is not among them, nor
// are the bytes given to Feed and appended by it.
func (c *Conn) MemoryBytes() int {
	held := connBytes + c.Buffered()
	d, h := &c.decoder, &c.block.headers
	held += cap(d.table.bytes) + cap(d.table.entries)*entryBytes + cap(d.scratch)
	held += cap(c.lastBlock.bytes) + cap(h.path) + cap(h.encoding)
	for _, k := range [...]*kept{h.kept, c.newest.kept} {
		if k != nil {
			held += k.bytes
		}
	}
	held += len(c.streams)*streamBytes + c.peakStreams*mapEntryBytes
	return held + (cap(c.receive.slotQueue)+cap(c.send.queue))*wordBytes
}
