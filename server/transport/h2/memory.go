package h2

import (
	"unsafe"
)

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
	d, h := &c.decoder, &c.block.headers
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
