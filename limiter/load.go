package limiter

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Load returns a table with the counters of a snapshot that [Table.Save] wrote from a table with
// the same [Options.Bytes]. If opt.Key is zero, the table gets the key of the snapshot. Load reads
// r to its end and validates the input. On error it returns no table; the error wraps one of the
// errors above or an error of r.
//
// Leases are not restored, and counters that expired since the snapshot are absent. If the
// partitions were reserved under other rules, [Table.Partitions] changes them as after any change
// of rules.
func Load(r io.Reader, opt Options) (*Table, SnapshotInfo, error) {
	l := &loader{source: source{r: bufio.NewReaderSize(r, sourceBytes)}}
	if err := l.readHeader(&opt); err != nil {
		return nil, SnapshotInfo{}, err
	}
	if err := l.readClasses(); err != nil {
		return nil, SnapshotInfo{}, err
	}
	l.info.Bytes = l.read
	return l.table, l.info, nil
}

// A loader reads a snapshot into a table that no other goroutine uses yet.
type loader struct {
	source

	table *Table
	info  SnapshotInfo
}

// readHeader reads the header and creates the table.
func (l *loader) readHeader(opt *Options) error {
	b, err := l.next(headerBytes)
	if len(b) > 0 && string(b[:min(len(b), len(snapshotMagic))]) != snapshotMagic[:min(len(b), len(snapshotMagic))] {
		return ErrNotSnapshot
	}
	if err != nil {
		return err
	}
	body := b[:headerBytes-crcBytes]
	sum := binary.LittleEndian.Uint32(b[headerBytes-crcBytes:])
	b = body[len(snapshotMagic):]
	if format := binary.LittleEndian.Uint32(b); format != snapshotFormat {
		return fmt.Errorf("%w: %d, this version reads %d", ErrFormat, format, snapshotFormat)
	}
	if crc32.Checksum(body, castagnoli) != sum {
		return fmt.Errorf("%w: header checksum mismatch", ErrDamaged)
	}
	l.info.At = Time(binary.LittleEndian.Uint64(b[4:])) //nolint:gosec // bits
	key := identity.Key(b[12:])
	size := binary.LittleEndian.Uint64(b[12+identity.KeyBytes:])
	if opt.Key == (identity.Key{}) {
		opt.Key = key
	}
	if l.table, err = New(*opt); err != nil {
		return err
	}
	switch {
	case opt.Key != key:
		return ErrKeyMismatch
	case size != uint64(l.table.bytes): //nolint:gosec // positive
		return fmt.Errorf("%w: saved with %d bytes, not %d", ErrBytesMismatch, size, l.table.bytes)
	}
	return nil
}

// readClasses reads everything after the header.
func (l *loader) readClasses() error {
	for {
		more, err := l.readUvarint(1)
		switch {
		case err != nil:
			return err
		case more == 0:
			return l.readTrailer()
		}
		if err := l.readClass(); err != nil {
			return err
		}
	}
}

// readTrailer reads the end of a snapshot, after the size classes.
func (l *loader) readTrailer() error {
	b, err := l.next(8)
	if err != nil {
		return err
	}
	horizon := Time(binary.LittleEndian.Uint64(b)) //nolint:gosec // bits
	sum := l.crc
	if b, err = l.next(crcBytes); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(b) != sum {
		return fmt.Errorf("%w: checksum mismatch", ErrDamaged)
	}
	switch more, err := l.hasMore(); {
	case err != nil:
		return err
	case more:
		return fmt.Errorf("%w: trailing data", ErrDamaged)
	}
	l.table.raiseHorizon(horizon, horizon)
	return nil
}

// readClass reads a size class.
func (l *loader) readClass() error {
	partition, err := l.readPartition()
	if err != nil {
		return err
	}
	size, err1 := l.readUvarint(MaxLog)
	start, err2 := l.readUvarint(layoutCount)
	count, err3 := l.readUvarint(layoutCount)
	if err := cmp.Or(err1, err2, err3); err != nil {
		return err
	}
	t := l.table
	c := slices.Index(sizes[:], int(size)) //nolint:gosec // at most MaxLog
	switch {
	case c < 0 || partition.classes[c].Load() != nil:
		return fmt.Errorf("%w: invalid size class with %d cells", ErrDamaged, size)
	case !partition.validStart(c, start):
		return fmt.Errorf("%w: invalid minimum of %d blocks", ErrDamaged, start)
	}
	t.growthMu.Lock()
	s := partition.newClassLocked(c, start)
	t.growthMu.Unlock()
	count = min(count, partition.maxBlocks(), uint64(len(s.blocks)))
	for n := start; n < count && t.takeMemory(s.blockSize()); n++ {
		s.layout.Add(1)
	}
	for n := uint64(hugeStep); n <= s.inUse(); n += hugeStep {
		s.adviseFilled(n) // the blocks are about to be filled
	}
	return l.readBlocks(partition, s)
}

// validStart reports whether a size class of p can have the given minimum number of blocks.
func (p *Partition) validStart(c int, start uint64) bool {
	each := uint64(slotBytes(sizes[c])) * ways                                                                                                   //nolint:gosec // positive
	return start == 2 || p == &p.table.common && bits.OnesCount64(start) == 1 && start > 2 && start*each <= uint64(p.table.bytes)/minBlocksShare //nolint:gosec // positive
}

// readPartition reads the partition of a size class.
func (l *loader) readPartition() (*Partition, error) {
	length, err := l.readUvarint(1 << 30)
	var name []byte
	for err == nil && length > 0 {
		var b []byte
		b, err = l.next(int(min(length, sourceBytes)))
		name = append(name, b...)
		length -= uint64(len(b))
	}
	bound, err1 := l.readUvarint(1<<63 - 1)
	if err := cmp.Or(err, err1); err != nil {
		return nil, err
	}
	if bound == 0 && len(name) > 0 {
		return nil, fmt.Errorf("%w: partition %q with a bound of %d", ErrDamaged, name, bound)
	}
	t := l.table
	switch {
	case len(name) > 0:
	case bound == 0:
		return &t.common, nil
	case bound == maxPinned:
		return &t.pinned, nil
	default:
		return nil, fmt.Errorf("%w: partition without a name, with a bound of %d", ErrDamaged, bound)
	}
	p := t.partitions[string(name)]
	if p == nil {
		p = &Partition{table: t, name: string(name)}
		t.partitions[p.name] = p
	}
	p.slots.Store(int64(bound)) //nolint:gosec // within the range
	return p, nil
}

// readBlocks reads the counters of a size class.
func (l *loader) readBlocks(p *Partition, s *sizeClass) error {
	each := 16
	if s.size > 0 {
		each += noteBytes + 8*s.size
	}
	for {
		number, err := l.readUvarint(layoutMove)
		if err != nil || number == 0 {
			return err
		}
		b, err := l.next(1)
		if err != nil {
			return err
		}
		mask := b[0]
		if b, err = l.next(bits.OnesCount8(mask) * each); err != nil {
			return err
		}
		layout := s.layout.Load()
		for at := 0; at < len(b); at += each {
			tag := binary.LittleEndian.Uint64(b[at:])
			if !s.fitsTag(tag) {
				return fmt.Errorf("%w: counter with invalid tag %#x", ErrDamaged, tag)
			}
			// The other blocks are anywhere in memory: those of all eight slots are prefetched in
			// parallel.
			other := &s.blocks[s.otherBlock(layout, address(s.hash(number-1, tag), layout&layoutCount), tag)]
			prefetch(&other[0].tag)
			prefetch(&other[lineWays].tag)
		}
		for ; mask != 0; mask &= mask - 1 {
			l.putCounter(p, s, number-1, uint64(bits.TrailingZeros8(mask)), b[:each]) //nolint:gosec // not negative
			b = b[each:]
		}
	}
}

// putCounter stores a counter that was in the given slot of a block, if possible in the same slot.
func (l *loader) putCounter(p *Partition, s *sizeClass, block, way uint64, b []byte) {
	tag := binary.LittleEndian.Uint64(b)
	word := binary.LittleEndian.Uint64(b[8:]) &^ generationBit
	id := s.partialID(block, tag)
	id.Lo |= way
	first, second := s.blockPair(id)
	slot, index := s.search(tag&^secondBit, first, second)
	if slot == nil {
		index = l.freeSlot(p, s, id, tag)
		l.info.Counters++
	}
	tag &^= secondBit
	if first, _ = s.blockPair(id); index/ways != first {
		tag |= secondBit
	}
	if s.size > 0 {
		note := s.noteAt(index)
		note.end.Store(int64(binary.LittleEndian.Uint64(b[16:]))) //nolint:gosec // bits
		note.past.Store(binary.LittleEndian.Uint64(b[24:]))
		cells := s.cellsOf(index)
		for i := range cells {
			cells[i].Store(binary.LittleEndian.Uint64(b[32+8*i:]))
		}
		word &= payloadMask
	}
	if level, forgotten := decodePenalty(word, l.info.At); level > 0 && kindOf(tag) == penaltyKind {
		l.table.raisePenalties(tag, forgotten)
	}
	s.fillSlot(index, s.slotAt(index).word.Load(), tag, word)
}

// fitsTag reports whether a counter with the tag can be in the size class.
func (s *sizeClass) fitsTag(tag uint64) bool {
	a := kindOf(tag)
	known := isSaved(tag) && a > 0 && (a < Algorithms || a == penaltyKind)
	return known && (algorithmsByTag[a].cells(&Policy{}) > 0) == (s.size > 0)
}

// freeSlot returns the number of a slot for the counter id, preferably that of its tag. If there is
// no room, it evicts the least used counter.
func (l *loader) freeSlot(p *Partition, s *sizeClass, id identity.ID, tag uint64) uint64 {
	t := l.table
	for tries := 1; ; tries++ {
		first, second := s.blockPair(id)
		if tag&secondBit != 0 {
			first, second = second, first
		}
		if index := first*ways + way(id); s.slotAt(index).tag.Load() == 0 {
			return index
		}
		index, word, live, ok := s.chooseSlot(tag, target{first, second, way(id)}, l.info.At)
		if ok && live && tries < maxRoomTries && t.makeRoom(l.info.At, p, s, id, tries) {
			continue
		}
		if t.takeSlotLocked(s, index, word, l.info.At) {
			return index
		}
	}
}
