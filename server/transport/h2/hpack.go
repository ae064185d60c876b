package h2

// decoder decodes header blocks (RFC 7541). Once its buffers have grown it does not allocate.
//
// It gets a block in fragments, and buffers at most one field. The caller skips strings of more
// than maxString bytes.
type decoder struct {
	table     headerTable
	known     *knownHeaders
	maxString int
	scratch   []byte // strings that are not views of the block
	// resizable is true at the beginning of a block, the only place for a size update (RFC 7541,
	// section 4.2).
	resizable bool
	// skippedName is set if a name was skipped and the field's value follows.
	skippedName skippedName
}

type skippedName byte

const (
	skippedNone skippedName = iota
	skippedLiteral
	skippedIndexed // the field would be inserted into the table
)

// minMaxString is the minimum of maxString: a string of this size, Huffman-coded with 30 bits per
// byte, decodes to more than the table can contain. So a skipped string never has to be inserted.
const minMaxString = 16 << 10

func newDecoder(known *knownHeaders, longest int) decoder {
	return decoder{table: headerTable{max: tableBytes}, known: known, maxString: max(longest, minMaxString)}
}

// beginBlock prepares for the next block.
func (d *decoder) beginBlock() {
	d.resizable = true
	d.skippedName = skippedNone
}

// atFieldBoundary reports whether the last field is complete.
func (d *decoder) atFieldBoundary() bool { return d.skippedName == skippedNone }

// compressionError returns an error that closes the connection, because the tables of client and
// server differ (4.3).
func compressionError(reason string) error { return &ConnError{CodeCompression, reason} }

// nextField decodes the first field of p. It consumes n bytes: 0 if the field is incomplete, and
// more than len(p) if the rest of a string must be skipped. A size update is consumed together with
// the following field, or, at the end of p, as a field of size 0.
func (d *decoder) nextField(p []byte) (f field, n int, err error) {
	if d.skippedName != skippedNone {
		f, n, err = d.skipValue(p)
		return f, n, err
	}
	for at := 0; at < len(p); {
		b := p[at]
		switch {
		case b&0x80 != 0:
			f, n, err = d.indexed(p[at:])
		case b&0x40 != 0:
			f, n, err = d.literal(p[at:], 6, true)
		case b&0x20 != 0:
			if n, err = d.resize(p[at:]); n > 0 && err == nil {
				at += n
				continue
			}
		default: // without indexing, or never indexed
			f, n, err = d.literal(p[at:], 4, false)
		}
		if n == 0 || err != nil {
			return field{}, at, err // size updates are consumed
		}
		d.resizable = false
		return f, at + n, nil
	}
	return field{}, len(p), nil
}

// resize handles a size update: RFC 7541, section 6.3.
func (d *decoder) resize(p []byte) (n int, err error) {
	size, n, err := readInteger(p, 5)
	switch {
	case n == 0 || err != nil:
		return 0, err
	case !d.resizable:
		return 0, compressionError("a size update inside a header block")
	case size > tableBytes:
		return 0, compressionError("a header table larger than allowed")
	}
	d.table.resize(size)
	return n, nil
}

// indexed decodes an indexed field: RFC 7541, section 6.1.
func (d *decoder) indexed(p []byte) (f field, n int, err error) {
	i, n, err := readInteger(p, 7)
	if n == 0 || err != nil {
		return field{}, 0, err
	}
	f, err = d.lookup(i)
	f.size = len(f.name) + len(f.value) + entryOverhead
	return f, n, err
}

// lookup returns an entry of the static or dynamic table: RFC 7541, section 2.3.3.
func (d *decoder) lookup(i int) (field, error) {
	if i > 0 {
		if i < firstDynamic {
			return d.known.static[i], nil
		}
		if f, ok := d.table.get(i - firstDynamic); ok {
			return f, nil
		}
	}
	return field{}, compressionError("an index that is in no table")
}

// literal decodes a field with a literal value: RFC 7541, section 6.2.
func (d *decoder) literal(p []byte, prefix uint, insert bool) (f field, n int, err error) {
	i, n, err := readInteger(p, prefix)
	if n == 0 || err != nil {
		return field{}, 0, err
	}
	var name hpackString
	if i == 0 {
		if name, err = readString(p[n:]); name.prefix == 0 || err != nil {
			return field{}, 0, err
		}
		n += name.prefix + name.length
		if name.length > d.maxString {
			d.skippedName = skippedLiteral
			if insert {
				d.skippedName = skippedIndexed
			}
			return field{tooLong: true, size: name.length + entryOverhead}, n, nil
		}
		if n > len(p) {
			return field{}, 0, nil
		}
	}
	s, err := readString(p[n:])
	if s.prefix == 0 || err != nil {
		return field{}, 0, err
	}
	// Check this before the name is decoded, so that a field in many fragments is decoded once.
	if s.length <= d.maxString && n+s.prefix+s.length > len(p) {
		return field{}, 0, nil
	}
	d.scratch = d.scratch[:0]
	if i != 0 {
		if f, err = d.lookup(i); err != nil {
			return field{}, 0, err
		}
		if insert && i >= firstDynamic {
			f.name = d.copyToScratch(f.name) // insert may move the table's bytes
		}
	} else {
		if f.name, err = d.decodeString(p[n-name.length:n], name.huffman); err != nil {
			return field{}, 0, err
		}
		f.headerName = nameOf(f.name)
	}
	n += s.prefix + s.length
	if s.length > d.maxString {
		if insert {
			d.table.evict(tableBytes)
		}
		return field{tooLong: true, size: len(f.name) + s.length + entryOverhead}, n, nil
	}
	if f.value, err = d.decodeString(p[n-s.length:n], s.huffman); err != nil {
		return field{}, 0, err
	}
	f.meaning = d.known.meaning(f.headerName, f.value)
	f.size = len(f.name) + len(f.value) + entryOverhead
	if insert {
		d.table.insert(&f)
	}
	return f, n, nil
}

// skipValue skips the value of a field whose name was skipped.
func (d *decoder) skipValue(p []byte) (f field, n int, err error) {
	s, err := readString(p)
	if s.prefix == 0 || err != nil {
		return field{}, 0, err
	}
	if d.skippedName == skippedIndexed {
		d.table.evict(tableBytes)
	}
	d.skippedName = skippedNone
	return field{tooLong: true, size: s.length}, s.prefix + s.length, nil
}

// decodeString decodes a string. The result is a view of the block, or of scratch.
func (d *decoder) decodeString(s []byte, coded bool) ([]byte, error) {
	if !coded {
		return s, nil
	}
	from := len(d.scratch)
	var ok bool
	if d.scratch, ok = huffman.append(d.scratch, s); !ok {
		return nil, compressionError("an invalid Huffman code")
	}
	return d.scratch[from:len(d.scratch):len(d.scratch)], nil
}

// copyToScratch copies bytes that an insert may overwrite.
func (d *decoder) copyToScratch(b []byte) []byte {
	d.scratch = append(d.scratch, b...)
	return d.scratch[:len(b):len(b)]
}

// hpackString is the header of a string: RFC 7541, section 5.2.
type hpackString struct {
	prefix, length int // sizes of the length and of the string; prefix is 0 if the length is incomplete
	huffman        bool
}

func readString(p []byte) (s hpackString, err error) {
	if len(p) == 0 {
		return s, nil
	}
	s.huffman = p[0]&0x80 != 0
	s.length, s.prefix, err = readInteger(p, 7)
	return s, err
}

// readInteger decodes an integer with a prefix of the given number of bits: RFC 7541, section 5.1.
// n is its size, 0 if it is incomplete. Integers of more than 28 bits after the prefix are an
// error.
func readInteger(p []byte, prefix uint) (v, n int, err error) {
	most := 1<<prefix - 1
	if v = int(p[0]) & most; v < most {
		return v, 1, nil
	}
	for shift := uint(0); shift < 28; shift += 7 {
		n++
		if n == len(p) {
			return 0, 0, nil
		}
		v += int(p[n]&0x7f) << shift
		if p[n]&0x80 == 0 {
			return v, n + 1, nil
		}
	}
	return 0, 0, compressionError("an integer that is too large")
}
