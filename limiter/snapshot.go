package limiter

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"runtime"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// A snapshot is the live counters of a table as bytes, so that they can outlive the
// process. Numbers are little-endian, or uvarints of package binary:
//
//	magic, format 4, saved at 8, key 16, bytes of the table 8, CRC-32C of these 4
//	for each size class that is in use:
//	    uvarint 1, partition: uvarint length and name, uvarint bound, 1 if counters of its
//	    may be in the common partition, else 0
//	    uvarints: cells of a counter, blocks at least, blocks in use
//	    for each block with live counters:
//	        uvarint number and one, 1 byte with a bit for each slot that follows
//	        of each slot: tag 8, word 8 and, if there are cells, note 16 and cells 8 each
//	    uvarint 0
//	uvarint 0, horizon 8, CRC-32C of all the above 4
//
// A slot tells who its counter is by its tag and the low bits of its block's number, as many
// as the size class has blocks at least. So what must be the same in the table that the
// snapshot is loaded into is that least number. How many blocks there are may differ, and does
// if the class grew while it was saved.
//
// A counter that stands twice in one size class is what it is the last time; see saver.
const (
	snapshotMagic  = "\x89SLUICE\n"
	snapshotFormat = 1
	headerBytes    = len(snapshotMagic) + 4 + 8 + identity.KeyBytes + 8 + crcBytes
	crcBytes       = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of [Load], beside those of its reader. All say why a snapshot is not taken.
var (
	// ErrNotSnapshot: what is read was never written by [Table.Save].
	ErrNotSnapshot = errors.New("not a snapshot of counters")
	// ErrFormat: it was written by a version of this package that writes another format.
	ErrFormat = errors.New("another format")
	// ErrDamaged: some of it is missing or changed.
	ErrDamaged = errors.New("damaged")
	// ErrBytesMismatch: its table had other [Options.Bytes].
	ErrBytesMismatch = errors.New("another size of memory")
	// ErrKeyMismatch: its table had another [Options.Key].
	ErrKeyMismatch = errors.New("another key")
)

// SnapshotInfo says what a snapshot has.
type SnapshotInfo struct {
	// At is when it was made.
	At Time
	// Counters is how many it has, and Bytes its length.
	Counters, Bytes int64
}

// Save writes the counters that are live at the time now, with what is held under leases, and the table's key, for [Load].
// It returns an error only if w does.
//
// Decisions go on meanwhile. Each counter is saved as it was at some moment between Save's
// beginning and its end, whole, though two counters of one group may be saved before
// and after it was charged. A counter of several words is locked while it is copied, a
// microsecond at most for a thousand cells. Inserts of new counters wait for the copy of
// a block. Saves happen one after another.
func (t *Table) Save(w io.Writer, now Time) (SnapshotInfo, error) {
	t.saves.Lock()
	defer t.saves.Unlock()
	s := &saver{w: w, at: now, horizon: math.MinInt64, saved: SnapshotInfo{At: now}}
	classes := t.beginSave()
	s.header(t)
	for _, c := range classes {
		s.class(c)
		defer c.class.passage.Store(nil)
	}
	s.end(t)
	runtime.KeepAlive(t) // its memory is not in Go's heap
	runtime.KeepAlive(classes)
	return s.saved, s.err
}

// beginSave returns the size classes to be saved. No counter moves from one to another
// meanwhile, so all have their passages before the first that one does.
func (t *Table) beginSave() (classes []savedClass) {
	for i := range t.moving {
		t.moving[i].Lock()
		defer t.moving[i].Unlock()
	}
	for p := range t.all() {
		for c := range p.all() {
			c.passage.Store(&passage{})
			classes = append(classes, savedClass{p, c})
		}
	}
	// Who settles a reservation charges a counter first, and then drops what was held, which has many cells as a rule. So a
	// settlement in between is saved as both and not as neither. If what was held is loaded, less is admitted after a crash
	// until the reservation ends, and never more.
	slices.SortStableFunc(classes, func(a, b savedClass) int { return cmp.Compare(b.class.size, a.class.size) })
	return classes
}

type savedClass struct {
	partition *Partition
	class     *sizeClass
}

// A saver writes a snapshot. Counters move while it does: to another block of their size
// class, as this grows or shrinks, or to another size class. Who moves one to where the
// saver has been hands it over, else it would be missing, and who moves one the other way
// says so, else it would be there twice; see passage. One that loses its slot and comes anew
// may be written twice. Within a size class the later state holds.
type saver struct {
	w       io.Writer
	buf     []byte
	crc     uint32
	at      Time
	horizon Time // of the counters that had expired
	saved   SnapshotInfo
	err     error
}

// saveStep is how many bytes are written at a time, or a block more.
const saveStep = 64 << 10

func (s *saver) header(t *Table) {
	b := []byte(snapshotMagic)
	b = binary.LittleEndian.AppendUint32(b, snapshotFormat)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.at)) //nolint:gosec // bits
	b = append(b, t.key[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.bytes)) //nolint:gosec // positive
	s.buf = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// class writes a size class.
func (s *saver) class(c savedClass) {
	p, sc := c.partition, c.class
	others := uint64(0)
	if p.others.Load() != nil && p != &p.table.common {
		others = 1
	}
	s.buf = binary.AppendUvarint(s.buf, 1)
	s.buf = binary.AppendUvarint(s.buf, uint64(len(p.name)))
	s.buf = append(s.buf, p.name...)
	for _, n := range []uint64{uint64(p.slots.Load()), others, sc.stride(), sc.start, sc.inUse()} { //nolint:gosec // not negative
		s.buf = binary.AppendUvarint(s.buf, n)
	}
	ps := sc.passage.Load()
	for block := uint64(0); s.err == nil; block++ {
		if block >= sc.inUse() && ps.finish(sc, block) {
			break
		}
		from := len(s.buf)
		for !s.block(sc, ps, block) {
			runtime.Gosched() // to who writes one of the counters
		}
		s.late(ps, from)
		if len(s.buf) >= saveStep {
			s.flush()
		}
	}
	s.late(ps, len(s.buf))
	s.buf = binary.AppendUvarint(s.buf, 0)
}

// late inserts what was handed over, before what has been copied since: if a counter is
// in both, the copy is later.
func (s *saver) late(ps *passage, at int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.late) == 0 {
		return
	}
	rest := append([]byte(nil), s.buf[at:]...)
	s.buf = append(append(s.buf[:at], ps.late...), rest...)
	s.saved.Counters += ps.count
	ps.late, ps.count = ps.late[:0], 0
}

// block appends a block's live counters, and passes it. It reports false, and has done
// nothing, if one of them is being written: waiting for its writer would keep those
// waiting who want the lock of the block.
func (s *saver) block(sc *sizeClass, ps *passage, block uint64) bool {
	held := sc.lock(block, block)
	defer held.unlock()
	before, horizon := len(s.buf), s.horizon
	s.buf = appendMask(s.buf, block, 0)
	mask := len(s.buf) - 1
	for j := range uint64(ways) {
		index := block*ways + j
		tag := sc.at(index).tag.Load()
		if tag == 0 || ps.skips(sc, block, tag) {
			continue
		}
		word := sc.at(index).word.Load()
		if sc.size > 0 && (sc.busy(word) || !sc.at(index).word.CompareAndSwap(word, word|lockBit)) {
			s.buf, s.horizon = s.buf[:before], horizon
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
			sc.at(index).word.Store(word)
		}
	}
	if s.buf[mask] == 0 {
		s.buf = s.buf[:before]
	} else {
		s.saved.Counters += int64(bits.OnesCount8(s.buf[mask]))
	}
	ps.passed.Store(block + 1)
	return true
}

// appendMask appends what comes before the counters of a block.
func appendMask(b []byte, block uint64, mask byte) []byte {
	return append(binary.AppendUvarint(b, block+1), mask)
}

// appendCounter appends a counter that nobody writes, whose word is word.
func (s *sizeClass) appendCounter(b []byte, index, tag, word uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, tag)
	if s.size == 0 {
		return binary.LittleEndian.AppendUint64(b, word&^generationBit)
	}
	b = binary.LittleEndian.AppendUint64(b, word&payloadMask)
	note := s.note(index)
	b = binary.LittleEndian.AppendUint64(b, uint64(note.end.Load())) //nolint:gosec // bits
	b = binary.LittleEndian.AppendUint64(b, note.past.Load())
	cells := s.cellsOf(index)
	for i := range cells {
		b = binary.LittleEndian.AppendUint64(b, cells[i].Load())
	}
	return b
}

// end writes what follows the counters. The horizon covers what was reclaimed since they
// were saved.
func (s *saver) end(t *Table) {
	s.buf = binary.AppendUvarint(s.buf, 0)
	s.buf = binary.LittleEndian.AppendUint64(s.buf, uint64(max(s.horizon, Time(t.horizon.Load())))) //nolint:gosec // bits
	s.flush()
	s.buf = binary.LittleEndian.AppendUint32(s.buf, s.crc)
	s.flush()
}

// flush writes what has been appended.
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
	s.saved.Bytes += int64(n)
	s.buf = s.buf[:0]
}
