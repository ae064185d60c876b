package limiter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"runtime"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A snapshot contains the live counters of a table, except leases. Numbers are little-endian, or uvarints of
// package encoding/binary. Sizes are in bytes:
//
//	magic, format 4, saved at 8, key 16, bytes of the table 8, CRC-32C of these 4
//	for each size class in use:
//	    uvarint 1, partition: uvarint length and name, uvarint bound. The common partition and that
//	    of pinned counters have no name, and the common one has the bound 0
//	    uvarints: cells per counter, minimum blocks, blocks in use
//	    for each block with live counters:
//	        uvarint block number + 1, 1 byte with a bit for each slot that follows
//	        for each slot: tag 8, word 8 and, if there are cells, note 16 and cells 8 each
//	    uvarint 0
//	uvarint 0, horizon 8, CRC-32C of all the above 4
//
// A counter is identified by its tag and by log2(minimum blocks) low bits of its block number. A
// table that loads the snapshot therefore needs the same minimum number of blocks. The number of
// blocks in use may differ, and does if the class grew during the snapshot.
//
// If a counter occurs twice in a size class, the last occurrence is valid; see saver.
const (
	snapshotMagic  = "\x89SLUICE\n"
	snapshotFormat = 3
	headerBytes    = len(snapshotMagic) + 4 + 8 + identity.KeyBytes + 8 + crcBytes
	crcBytes       = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of [Load], in addition to those of its reader.
var (
	// ErrNotSnapshot means that the input was not written by [Table.Save].
	ErrNotSnapshot = errors.New("not a snapshot of counters")
	// ErrFormat means that the snapshot has the format of another version of this package.
	ErrFormat = errors.New("unsupported snapshot format")
	// ErrDamaged means that the snapshot is truncated or corrupt.
	ErrDamaged = errors.New("damaged")
	// ErrBytesMismatch means that the snapshot is from a table with other [Options.Bytes].
	ErrBytesMismatch = errors.New("different counter memory")
	// ErrKeyMismatch means that the snapshot is from a table with another [Options.Key].
	ErrKeyMismatch = errors.New("different key")
)

// SnapshotInfo describes a snapshot.
type SnapshotInfo struct {
	// At is when the snapshot was made.
	At Time
	// Counters is the number of counters in the snapshot, and Bytes its length.
	Counters, Bytes int64
}

// Save writes the counters that are live at the time now, and the table's key, for [Load]. It
// returns an error only if w does.
//
// Decisions continue during a save. Each counter is saved in a consistent state from some moment
// during the call, but two counters of a group may be saved before and after a charge of the group.
// A counter with cells is locked while it is copied, for at most a microsecond per thousand cells.
// Inserts of new counters wait while a block is copied. Concurrent saves are serialised.
func (t *Table) Save(w io.Writer, now Time) (SnapshotInfo, error) {
	t.saveMu.Lock()
	defer t.saveMu.Unlock()
	s := &saver{w: w, at: now, horizon: math.MinInt64, info: SnapshotInfo{At: now}}
	classes := t.beginSave()
	s.writeHeader(t)
	for _, c := range classes {
		s.writeClass(c)
		defer c.class.cursor.Store(nil)
	}
	s.writeTrailer(t)
	runtime.KeepAlive(t) // its memory is not in Go's heap
	runtime.KeepAlive(classes)
	return s.info, s.err
}

// beginSave returns the size classes to save and sets their cursors. No counter moves between
// classes meanwhile.
func (t *Table) beginSave() (classes []savedClass) {
	for i := range t.moving {
		t.moving[i].Lock()
		defer t.moving[i].Unlock()
	}
	for p := range t.allPartitions() {
		bound := p.slots.Load()
		if bound == retired {
			continue
		}
		for c := range p.sizeClasses() {
			c.cursor.Store(&snapshotCursor{})
			classes = append(classes, savedClass{p.name, uint64(bound), c}) //nolint:gosec // not negative
		}
	}
	return classes
}

type savedClass struct {
	partition string
	bound     uint64
	class     *sizeClass
}

// A saver writes a snapshot. Counters may move meanwhile, to another block of their size class when
// it grows or shrinks, or to another class. A goroutine that moves a counter from an unwritten
// block to a written one passes it to the saver, which would otherwise miss it. A goroutine that
// moves a counter the other way makes the saver skip it; see snapshotCursor. A counter that loses
// its slot and is inserted again may be written twice; the later state is valid.
type saver struct {
	w       io.Writer
	buf     []byte
	crc     uint32
	at      Time
	horizon Time // latest end of an expired counter
	info    SnapshotInfo
	err     error
}

// saveStep is the buffer size, in bytes, at which data is written.
const saveStep = 64 << 10

func (s *saver) writeHeader(t *Table) {
	b := []byte(snapshotMagic)
	b = binary.LittleEndian.AppendUint32(b, snapshotFormat)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.at)) //nolint:gosec // bits
	b = append(b, t.key[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.bytes)) //nolint:gosec // positive
	s.buf = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// writeClass writes a size class.
func (s *saver) writeClass(c savedClass) {
	sc := c.class
	s.buf = binary.AppendUvarint(s.buf, 1)
	s.buf = binary.AppendUvarint(s.buf, uint64(len(c.partition)))
	s.buf = append(s.buf, c.partition...)
	for _, n := range []uint64{c.bound, sc.stride(), sc.minBlocks, sc.inUse()} {
		s.buf = binary.AppendUvarint(s.buf, n)
	}
	ps := sc.cursor.Load()
	for block := uint64(0); s.err == nil; block++ {
		if block >= sc.inUse() && ps.finishClass(sc, block) {
			break
		}
		from := len(s.buf)
		for !s.writeBlock(sc, ps, block) {
			runtime.Gosched() // to the writer of a counter
		}
		s.insertMoved(ps, from)
		if len(s.buf) >= saveStep {
			s.flush()
		}
	}
	s.insertMoved(ps, len(s.buf))
	s.buf = binary.AppendUvarint(s.buf, 0)
}

// insertMoved inserts the moved counters before s.buf[at:]. If a counter is in both, the later copy
// in s.buf is valid.
func (s *saver) insertMoved(ps *snapshotCursor, at int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.moved) == 0 {
		return
	}
	rest := append([]byte(nil), s.buf[at:]...)
	s.buf = append(append(s.buf[:at], ps.moved...), rest...)
	s.info.Counters += ps.movedCount
	ps.moved = ps.moved[:0]
	ps.movedCount = 0
}

// writeBlock appends the live counters of a block and advances the cursor. It returns false without
// effect if one of them is being written: waiting for the writer would also delay others that need
// the lock of the block.
func (s *saver) writeBlock(sc *sizeClass, ps *snapshotCursor, block uint64) bool {
	held := sc.lockBlocks(block, block)
	defer held.unlock()
	before := len(s.buf)
	horizon := s.horizon
	s.buf = appendMask(s.buf, block, 0)
	mask := len(s.buf) - 1
	for j := range uint64(ways) {
		index := block*ways + j
		tag := sc.slotAt(index).tag.Load()
		if !isSaved(tag) || ps.skips(sc, block, tag) {
			continue
		}
		word := sc.slotAt(index).word.Load()
		if sc.size > 0 && (sc.isBusy(word) || !sc.slotAt(index).word.CompareAndSwap(word, word|lockBit)) {
			s.buf = s.buf[:before]
			s.horizon = horizon
			return false
		}
		pause(whileSaved)
		a := algorithmOf(tag)
		if end, live := a.expiry(sc, index, word, s.at); !live {
			s.horizon = max(s.horizon, min(end, s.at)) // as if it had been reclaimed
		} else if a.weight(sc, index, word) > 0 {
			s.buf = sc.appendCounter(s.buf, index, tag, word)
			s.buf[mask] |= 1 << j
		}
		if sc.size > 0 {
			sc.slotAt(index).word.Store(word)
		}
	}
	if s.buf[mask] == 0 {
		s.buf = s.buf[:before]
	} else {
		s.info.Counters += int64(bits.OnesCount8(s.buf[mask]))
	}
	ps.written.Store(block + 1)
	return true
}

// isSaved reports whether snapshots contain the counter with a tag. Leases end with the process that
// granted them.
func isSaved(tag uint64) bool { return tag != 0 && kindOf(tag) != Concurrency }

// appendMask appends the header of a block.
func appendMask(b []byte, block uint64, mask byte) []byte {
	return append(binary.AppendUvarint(b, block+1), mask)
}

// appendCounter appends a counter with the given word that no goroutine is writing.
func (s *sizeClass) appendCounter(b []byte, index, tag, word uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, tag)
	if s.size == 0 {
		return binary.LittleEndian.AppendUint64(b, word&^generationBit)
	}
	b = binary.LittleEndian.AppendUint64(b, word&payloadMask)
	note := s.noteAt(index)
	b = binary.LittleEndian.AppendUint64(b, uint64(note.end.Load())) //nolint:gosec // bits
	b = binary.LittleEndian.AppendUint64(b, note.past.Load())
	cells := s.cellsOf(index)
	for i := range cells {
		b = binary.LittleEndian.AppendUint64(b, cells[i].Load())
	}
	return b
}

// writeTrailer writes the end of a snapshot, after the counters. The horizon includes counters that
// were reclaimed during the save.
func (s *saver) writeTrailer(t *Table) {
	s.buf = binary.AppendUvarint(s.buf, 0)
	s.buf = binary.LittleEndian.AppendUint64(s.buf, uint64(max(s.horizon, Time(t.horizon.Load())))) //nolint:gosec // bits
	s.flush()
	s.buf = binary.LittleEndian.AppendUint32(s.buf, s.crc)
	s.flush()
}

// flush writes the buffer.
func (s *saver) flush() {
	if s.err != nil {
		return
	}
	s.crc = crc32.Update(s.crc, castagnoli, s.buf)
	n, err := s.w.Write(s.buf)
	if err == nil && n < len(s.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		s.err = fmt.Errorf("write counters: %w", err)
	}
	s.info.Bytes += int64(n)
	s.buf = s.buf[:0]
}
