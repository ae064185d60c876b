package tables

import "testing"

// TestTableBounds checks the bounds of a table in docs/tables.md. The memory of a full table is
// allocated but not used, so it is not resident.
func TestTableBounds(t *testing.T) {
	const rows, keyBytes = 4_194_304, 256 << 20
	b := builder{columns: []string{"a"}, hasher: New("t").Rows().hasher, rows: make([]pending, rows-1, rows+1)}
	for n, full := range []bool{false, true} {
		if err := b.add([]string{"x"}, Row{}, n); (err != nil) != full {
			t.Errorf("row %d: %v", rows+n, err)
		}
	}
	b.rows, b.keys = nil, make([]byte, keyBytes-10, keyBytes+100)
	for _, value := range []string{"", "a longer value"} {
		if err := b.add([]string{value}, Row{}, 0); (err != nil) != (value != "") {
			t.Errorf("%d bytes of keys: %v", len(b.keys), err)
		}
	}
}
