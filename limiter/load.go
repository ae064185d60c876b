package limiter

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// Load returns a table with the counters of a snapshot, made by [Table.Save] of a table with
// the same [Options.Bytes]. If opt.Key is zero, the table has that of the snapshot. It
// reads to the end of r, and does not trust what it reads: any error means that nothing of it
// is to be used, and wraps one of the errors above or one of r's.
//
// A lease of the earlier process is good if [Options.RestoreLeases] is set and the lease is in the snapshot. Any other gives
// nothing back, as one that is stale.
//
// It is as if the time between had passed in memory: a counter that has expired meanwhile equals an
// absent one, and [Table.Partitions] treats what was reserved under other rules as it
// does at any change of rules.
func Load(r io.Reader, opt Options) (*Table, SnapshotInfo, error) {
	l := &loader{source: source{r: r}, leases: opt.RestoreLeases}
	if err := l.header(&opt); err != nil {
		return nil, SnapshotInfo{}, err
	}
	if err := l.classes(); err != nil {
		return nil, SnapshotInfo{}, err
	}
	l.saved.Bytes = l.read
	return l.table, l.saved, nil
}

// A loader puts the counters of a snapshot into a table that nobody else has yet.
type loader struct {
	source

	table  *Table
	saved  SnapshotInfo
	leases bool // see Options
}

// header reads the header, and makes the table.
func (l *loader) header(opt *Options) error {
	b, err := l.next(headerBytes)
	if len(b) > 0 && string(b[:min(len(b), len(snapshotMagic))]) != snapshotMagic[:min(len(b), len(snapshotMagic))] {
		return ErrNotSnapshot
	}
	if err != nil {
		return err
	}
	body, sum := b[:headerBytes-crcBytes], binary.LittleEndian.Uint32(b[headerBytes-crcBytes:])
	b = body[len(snapshotMagic):]
	if format := binary.LittleEndian.Uint32(b); format != snapshotFormat {
		return fmt.Errorf("%w: %d, this version reads %d", ErrFormat, format, snapshotFormat)
	}
	if crc32.Checksum(body, castagnoli) != sum {
		return fmt.Errorf("%w: the header's checksum is wrong", ErrDamaged)
	}
	l.saved.At = Time(binary.LittleEndian.Uint64(b[4:])) //nolint:gosec // bits
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
		return fmt.Errorf("%w: it was made with %d bytes, not %d", ErrBytesMismatch, size, l.table.bytes)
	}
	return nil
}

// classes reads what follows the header.
func (l *loader) classes() error {
	for {
		more, err := l.number(1)
		switch {
		case err != nil:
			return err
		case more == 0:
			return l.end()
		}
		if err := l.class(); err != nil {
			return err
		}
	}
}

// end reads what follows the size classes.
func (l *loader) end() error {
	b, err := l.next(8)
	if err != nil {
		return err
	}
	horizon := Time(binary.LittleEndian.Uint64(b)) //nolint:gosec // bits
	sum := l.sum()
	if b, err = l.next(crcBytes); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(b) != sum {
		return fmt.Errorf("%w: the checksum is wrong", ErrDamaged)
	}
	switch more, err := l.more(); {
	case err != nil:
		return err
	case more:
		return fmt.Errorf("%w: something follows its end", ErrDamaged)
	}
	l.table.raiseHorizon(horizon, horizon)
	l.table.growth.Lock()
	defer l.table.growth.Unlock()
	l.table.retireLocked(l.saved.At)
	return nil
}

// class reads a size class.
func (l *loader) class() error {
	partition, err := l.partition()
	if err != nil {
		return err
	}
	size, err1 := l.number(MaxLog)
	start, err2 := l.number(layoutCount)
	count, err3 := l.number(layoutCount)
	if err := cmp.Or(err1, err2, err3); err != nil {
		return err
	}
	t := l.table
	c := slices.Index(sizes[:], int(size)) //nolint:gosec // at most MaxLog
	switch {
	case c < 0 || partition.classes[c].Load() != nil:
		return fmt.Errorf("%w: a size class of counters with %d cells", ErrDamaged, size)
	case !partition.mayBegin(c, start):
		return fmt.Errorf("%w: a size class of %d blocks at least", ErrDamaged, start)
	}
	t.growth.Lock()
	s := partition.makeLocked(c, start)
	t.growth.Unlock()
	count = min(count, partition.most(), uint64(len(s.blocks)))
	for n := start; n < count && t.take(s.blockSize()); n++ {
		s.layout.Add(1)
	}
	for n := uint64(hugeStep); n <= s.inUse(); n += hugeStep {
		s.advise(n) // they are about to be filled
	}
	return l.blocks(partition, s)
}

// mayBegin reports whether a size class of p can have so many blocks at least.
func (p *Partition) mayBegin(c int, start uint64) bool {
	each := uint64(slotBytes(sizes[c])) * ways                                                                                               //nolint:gosec // positive
	return start == 2 || p == &p.table.common && bits.OnesCount64(start) == 1 && start > 2 && start*each <= uint64(p.table.bytes)/startShare //nolint:gosec // positive
}

// partition reads the partition of a size class.
func (l *loader) partition() (*Partition, error) {
	length, err := l.number(1 << 30)
	var name []byte
	for err == nil && length > 0 {
		var b []byte
		b, err = l.next(int(min(length, sourceBytes)))
		name, length = append(name, b...), length-uint64(len(b))
	}
	bound, err1 := l.number(1<<63 - 1)
	others, err2 := l.number(1)
	if err := cmp.Or(err, err1, err2); err != nil {
		return nil, err
	}
	t := l.table
	if len(name) == 0 {
		return &t.common, nil
	}
	p := t.partitions[string(name)]
	if p == nil {
		p = &Partition{table: t, name: string(name)}
		t.partitions[p.name] = p
	}
	p.slots.Store(int64(bound)) //nolint:gosec // within the range
	if others > 0 {
		p.others.Store(&[]*Partition{&t.common})
	}
	return p, nil
}

// blocks reads the counters of a size class.
func (l *loader) blocks(p *Partition, s *sizeClass) error {
	each := 16
	if s.size > 0 {
		each += noteBytes + 8*s.size
	}
	for {
		number, err := l.number(layoutMove)
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
			if !s.fits(tag) {
				return fmt.Errorf("%w: a counter with the tag %#x", ErrDamaged, tag)
			}
			// Where it may stand too is anywhere in memory: all eight are asked for at once.
			other := &s.blocks[s.other(layout, address(s.hash(number-1, tag), layout&layoutCount), tag)]
			prefetch(&other[0].tag)
			prefetch(&other[lineWays].tag)
		}
		for ; mask != 0; mask &= mask - 1 {
			l.put(p, s, number-1, uint64(bits.TrailingZeros8(mask)), b[:each]) //nolint:gosec // not negative
			b = b[each:]
		}
	}
}

// put puts a counter into the size class. It was in a slot of a block, and gets that if it can.
func (l *loader) put(p *Partition, s *sizeClass, block, way uint64, b []byte) {
	tag, word := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])&^generationBit
	places := Algorithm(tag>>1&(1<<algorithmBits-1)) == Concurrency
	if places && !l.leases {
		return
	}
	id := s.known(block, tag)
	id.Lo |= way
	first, second := s.pair(id)
	slot, index := s.search(tag&^secondBit, first, second)
	if slot == nil {
		index = l.slot(p, s, id, tag)
		l.saved.Counters++
	}
	tag &^= secondBit
	if first, _ = s.pair(id); index/ways != first {
		tag |= secondBit
	}
	if s.size > 0 {
		note := s.note(index)
		note.end.Store(int64(binary.LittleEndian.Uint64(b[16:]))) //nolint:gosec // bits
		note.past.Store(binary.LittleEndian.Uint64(b[24:]))
		cells := s.cellsOf(index)
		for i := range cells {
			cells[i].Store(binary.LittleEndian.Uint64(b[32+8*i:]))
		}
		word &= payloadMask
	}
	if level, forgotten := offence(word, l.saved.At); level > 0 && tag>>1&(1<<algorithmBits-1) == penaltyKind {
		l.table.raisePenalties(tag, forgotten)
	}
	s.fill(index, s.at(index).word.Load(), tag, word)
}

// fits reports whether a counter with the tag can be in the size class.
func (s *sizeClass) fits(tag uint64) bool {
	a := int(tag >> 1 & (1<<algorithmBits - 1))
	known := a > 0 && (a < Algorithms || a == penaltyKind)
	return known && (algorithms[a].cells(&Policy{}) > 0) == (s.size > 0)
}

// slot returns the number of a slot for the counter id, that of its tag if it is free. If there is no room,
// the counter that has used least is evicted.
func (l *loader) slot(p *Partition, s *sizeClass, id identity.ID, tag uint64) uint64 {
	t := l.table
	for tries := 1; ; tries++ {
		first, second := s.pair(id)
		if tag&secondBit != 0 {
			first, second = second, first
		}
		if index := first*ways + way(id); s.at(index).tag.Load() == 0 {
			return index
		}
		index, word, live, ok := s.choose(tag, target{first, second, way(id)}, l.saved.At)
		if ok && live && tries < maxRoomTries && t.makeRoom(l.saved.At, p, s, id, tries) {
			continue
		}
		if t.takeSlotLocked(s, index, word, l.saved.At) {
			return index
		}
	}
}
