package h2

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// decodeBlock decodes a block in fragments of the given size, as a connection does.
func decodeBlock(d *decoder, block []byte, piece int) (fields []string, err error) {
	d.beginBlock()
	var tail []byte
	skip := 0
	for first := true; first || len(block) > 0; first = false {
		n := min(piece, len(block))
		p := block[:n]
		block = block[n:]
		cut := min(skip, len(p))
		skip -= cut
		p = append(tail, p[cut:]...)
		for len(p) > 0 {
			f, n, err := d.nextField(p)
			switch {
			case err != nil:
				return fields, err
			case f.tooLong:
				fields = append(fields, "too long")
			case f.size > 0:
				fields = append(fields, fmt.Sprintf("%q=%q", f.name, f.value))
			}
			if n == 0 {
				break
			}
			skip = max(0, n-len(p))
			p = p[min(n, len(p)):]
		}
		tail = bytes.Clone(p)
	}
	if len(tail) > 0 || skip > 0 || !d.atFieldBoundary() {
		return fields, errors.New("the block ends within a field")
	}
	return fields, nil
}

func TestDecode(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for _, tt := range []struct {
		name   string
		blocks []string
		want   string
	}{
		{"examples of RFC 7541, C.4", []string{
			"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
			"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
			"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
		}, `[":method"="GET" ":scheme"="https" ":path"="/index.html" ":authority"="www.example.com" "custom-key"="custom-value"]`},
		{"a name that its own insert evicts", []string{
			"\x40\x01a\x7f\xb9\x16" + long, // 3000 bytes and more: fills most of the table
			"\x7e\x7f\xb9\x16" + long,      // its name, index 62
			"\xbe",
		}, fmt.Sprintf(`["a"=%q]`, long)},
		{"an entry larger than the table", []string{"\x40\x01a\x01b", "\x40\x01c\x7f\x81\x20" + strings.Repeat("x", 4096+128), "\xbe"}, "error"},
		{"a table of size 0", []string{"\x40\x01a\x01b", "\x20", "\xbe"}, "error"},
		{"two size updates", []string{"\x40\x01a\x01b", "\x20\x3f\xe1\x1f\x40\x01c\x01d", "\xbe"}, `["c"="d"]`},
		{"a size update after a field", []string{"\x82\x20"}, "error"},
		{"a size that is not allowed", []string{"\x3f\xe2\x1f"}, "error"},
		{"index 0", []string{"\x80"}, "error"},
		{"an index beyond the table", []string{"\xbe"}, "error"},
		{"half a string", []string{"\x40\x01a\x02b"}, "error"},
		{"half an integer", []string{"\xff"}, "error"},
		{"an integer that never ends", []string{"\xff\x80\x80\x80\x80\x80\x80\x00"}, "error"},
		{"never indexed", []string{"\x10\x01a\x01b"}, `["a"="b"]`},
		{"nothing", []string{""}, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for piece := 1; piece < 5000; piece += 1 + piece/2 {
				d := newDecoder(newKnownHeaders(nil), 0)
				var got string
				for _, b := range tt.blocks {
					fields, err := decodeBlock(&d, []byte(b), piece)
					if got = fmt.Sprint(fields); err != nil {
						got = "error"
					}
				}
				if got != tt.want {
					t.Errorf("in pieces of %d bytes: %.200s, want %.200s", piece, got, tt.want)
				}
			}
		})
	}
}

// TestLongStringsAreSkipped also verifies that the following fields are decoded, and that the table
// is emptied as if the field had been inserted.
func TestLongStringsAreSkipped(t *testing.T) {
	long := strings.Repeat("x", minMaxString+1)
	for _, tt := range []struct {
		name  string
		write func(b []byte) []byte
		empty bool
	}{
		{"name, indexed", func(b []byte) []byte {
			return appendLiteralString(appendLiteralString(append(b, 0x40), long), "v")
		}, true},
		{"value, indexed", func(b []byte) []byte {
			return appendLiteralString(appendLiteralString(append(b, 0x40), "n"), long)
		}, true},
		{"both, indexed", func(b []byte) []byte {
			return appendLiteralString(appendLiteralString(append(b, 0x40), long), long)
		}, true},
		{"name", func(b []byte) []byte { return appendLiteralString(appendLiteralString(append(b, 0), long), "v") }, false},
		{"value", func(b []byte) []byte { return appendLiteralString(appendLiteralString(append(b, 0), "n"), long) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, piece := range []int{1, 7, 1000, 1 << 20} {
				d := newDecoder(newKnownHeaders(nil), 0)
				block := append(tt.write([]byte("\x40\x01a\x01b")), "\x40\x01c\x01d\xbe"...)
				fields, err := decodeBlock(&d, block, piece)
				if err != nil || len(fields) < 4 || fields[1] != "too long" || fields[len(fields)-1] != `"c"="d"` {
					t.Errorf("in pieces of %d bytes: %q, %v", piece, fields, err)
				}
				if _, ok := d.table.get(1); ok == tt.empty {
					t.Errorf("the field before is in the table: %v", ok)
				}
			}
		})
	}
}

func appendLiteralString(b []byte, s string) []byte {
	return append(appendInteger(b, len(s)), s...)
}

// TestFragmentedFieldsAreDecodedOnce passes a field in fragments, as CONTINUATION frames may
// contain it. No string is decoded before the field is complete.
func TestFragmentedFieldsAreDecodedOnce(t *testing.T) {
	d := newDecoder(newKnownHeaders(nil), 0)
	name := append([]byte{0x80 | 100}, bytes.Repeat([]byte{0x1f}, 100)...)
	encoded := slices.Concat([]byte{0}, name, name)
	for n := range encoded {
		d.beginBlock()
		if _, used, err := d.nextField(encoded[:n]); used != 0 || err != nil || cap(d.scratch) > 0 {
			t.Fatalf("consumed %d of the first %d bytes, and decoded %d bytes of strings: %v", used, n, cap(d.scratch), err)
		}
	}
	f, used, err := d.nextField(encoded)
	if used != len(encoded) || err != nil || len(f.name) != 100 || len(f.value) != 100 {
		t.Errorf("consumed %d of %d bytes, with a name of %d bytes and a value of %d: %v", used, len(encoded), len(f.name), len(f.value), err)
	}
}

// FuzzHeaderBlocks compares the decoder with x/net, with complete and fragmented blocks. The first
// byte is the size of the fragments, and lines are blocks.
func FuzzHeaderBlocks(f *testing.F) {
	f.Add([]byte("\x05\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\n\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf"))
	f.Add([]byte("\x01\x40\x01a\x01b\n\x7e\x02cd\n\xbe\xbf\x20\x3f\xe1\x1f"))
	f.Add([]byte("\x03\x3f\x40\x40\x01a\x01b\x40\x01c\x01d\x40\x02ef\x03ghi\xbe\xbf\xc0"))
	moves := []byte{7}
	for i := range 300 { // the table moves its entries while they are in use
		moves = fmt.Appendf(moves, "\x40\x04%04d\x14%020d\n", i, i)
		if i > 30 {
			moves = append(moves, "\xbe\xd0\n"...)
		}
	}
	f.Add(moves)
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) == 0 {
			return
		}
		piece := 1 + int(input[0])
		ours, inPieces := newDecoder(newKnownHeaders(nil), 0), newDecoder(newKnownHeaders(nil), 0)
		var want []string
		theirs := hpack.NewDecoder(tableBytes, func(h hpack.HeaderField) {
			want = append(want, fmt.Sprintf("%q=%q", h.Name, h.Value))
		})
		for block := range bytes.SplitSeq(input[1:], []byte("\n")) {
			want = nil
			got, err := decodeBlock(&ours, block, 1<<20)
			again, errAgain := decodeBlock(&inPieces, block, piece)
			if !slices.Equal(got, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
				t.Fatalf("%x: complete %q, %v; in fragments of %d bytes %q, %v", block, got, err, piece, again, errAgain)
			}
			_, wantErr := theirs.Write(block)
			if closeErr := theirs.Close(); wantErr == nil {
				wantErr = closeErr
			}
			if e := (*ConnError)(nil); errors.As(err, &e) &&
				(strings.HasPrefix(e.Reason, "an integer") || strings.HasPrefix(e.Reason, "a size update within")) {
				return // x/net accepts longer integers, and updates while its table is empty
			}
			if err == nil && wantErr != nil && strings.Contains(wantErr.Error(), "dynamic table size update MUST occur at the beginning") {
				return // x/net rejects a second update, which RFC 7541, section 4.2, allows
			}
			if (err == nil) != (wantErr == nil) || err == nil && !slices.Equal(got, want) {
				t.Fatalf("%x: %q, %v; by x/net %q, %v", block, got, err, want, wantErr)
			}
			if err != nil {
				return
			}
			checkTable(t, &ours.table)
		}
	})
}

// checkTable checks the invariants of the table.
func checkTable(t *testing.T, table *headerTable) {
	t.Helper()
	size := 0
	for i := range table.n {
		f, _ := table.get(i)
		size += len(f.name) + len(f.value) + entryOverhead
	}
	if size != table.size || size > table.max || table.max > tableBytes || cap(table.bytes) > 2*tableBytes {
		t.Errorf("the table has %d bytes, counts %d, may have %d, and allocated %d", size, table.size, table.max, cap(table.bytes))
	}
}
