package tables

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

func open(t *testing.T, dir string) (j *Journal, torn int64) {
	t.Helper()
	j, torn, err := OpenJournal(New("t"), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j, torn
}

// flush waits until the journal is compacted after earlier changes.
func flush(t *testing.T, j *Journal) {
	t.Helper()
	apply(t, j)
}

func apply(t *testing.T, j *Journal, changes ...Change) {
	t.Helper()
	if err := j.Apply([]string{"a", "b"}, changes, false); err != nil {
		t.Fatal(err)
	}
}

func put(a, b string, row Row) Change { return Change{Values: []string{a, b}, Row: row} }

// history applies changes to a new journal. It returns the size of the file and the rows after each
// change.
func history(t *testing.T, dir string) (sizes []int64, states []map[string]Row) {
	t.Helper()
	j, _ := open(t, dir)
	for _, changes := range [][]Change{
		{put("x", "1", Row{RequestsPerUnit: 5})},
		{put("x", "2", Row{RequestsPerUnit: 7, Unit: 3, Burst: 4, Name: "gold"}), put("", "", Row{Unlimited: true})},
		{put("x", "1", Row{RequestsPerUnit: 6})},
		{{Values: []string{"x", "2"}, Delete: true}},
		{put("y\x01", strings.Repeat("z", 300), Row{RequestsPerUnit: 1 << 31})},
		{{Values: []string{"x", "none"}, Delete: true}, put("x", "2", Row{})},
	} {
		apply(t, j, changes...)
		sizes, states = append(sizes, j.size), append(states, rowsOf(j.table.Rows()))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return sizes, states
}

// TestJournalTruncatedAtEachByte simulates a process that is killed after each byte that it writes:
// all acknowledged changes are present, and the others are absent. The truncated record may be
// followed by bytes that a file system leaves after an incomplete write.
func TestJournalTruncatedAtEachByte(t *testing.T) {
	dir := t.TempDir()
	sizes, states := history(t, dir)
	whole, err := os.ReadFile(filepath.Join(dir, "t.table"))
	if err != nil || int64(len(whole)) != sizes[len(sizes)-1] {
		t.Fatalf("%d bytes, want %d: %v", len(whole), sizes[len(sizes)-1], err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	garbage := make([]byte, 40)
	for cut := int(sizes[0]); cut <= len(whole); cut++ {
		if effort.Level(t) < effort.More && cut%11 > 0 && cut < len(whole)-16 {
			continue
		}
		for i := range garbage {
			garbage[i] = byte(random.Uint32())
		}
		for _, tail := range []string{"", strings.Repeat("\x00", 100), string(garbage)} {
			dir := t.TempDir()
			path := filepath.Join(dir, "t.table")
			content := slices.Concat(whole[:cut], []byte(tail))
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			last := 0 // last complete record; the bytes after the cut may complete one
			for last+1 < len(sizes) && bytes.HasPrefix(content, whole[:sizes[last+1]]) {
				last++
			}
			j, torn := open(t, dir)
			if got := rowsOf(j.table.Rows()); !maps.Equal(got, states[last]) {
				t.Fatalf("cut at %d, then %q: rows %v, want %v", cut, tail, got, states[last])
			}
			if want := int64(cut+len(tail)) - sizes[last]; torn != want {
				t.Fatalf("cut at %d, then %q: %d torn bytes, want %d", cut, tail, torn, want)
			}
			if tail != "" && cut%16 > 0 {
				continue // skipped to save time
			}
			apply(t, j, put("x", "3", Row{RequestsPerUnit: 9}))
			again, torn := open(t, dir)
			if row, ok := again.table.Rows().Get([]string{"x", "3"}); torn != 0 || !ok || row.RequestsPerUnit != 9 || again.table.Rows().Len() != len(states[last])+1 {
				t.Fatalf("cut at %d, then a change: %v, %t, %d rows, %d torn bytes", cut, row, ok, again.table.Rows().Len(), torn)
			}
		}
	}
}

// TestJournalDamaged flips each byte: the loss of an acknowledged change is always an error, except
// for the last one, which cannot be distinguished from an unacknowledged change.
func TestJournalDamaged(t *testing.T) {
	dir := t.TempDir()
	sizes, states := history(t, dir)
	path := filepath.Join(dir, "t.table")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		damaged := append([]byte(nil), whole...)
		damaged[at] ^= 0x10
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		j, _, err := OpenJournal(New("t"), dir, nil)
		switch before := len(sizes) - 2; {
		case int64(at) < sizes[before] && at < len(journalMagic):
			if err == nil {
				t.Fatalf("byte %d: another kind of file was accepted", at)
			}
		case int64(at) < sizes[before]:
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("byte %d: %v, want a damaged file", at, err)
			}
		case err != nil || !maps.Equal(rowsOf(j.table.Rows()), states[before]):
			t.Fatalf("byte %d, of the last record: %v", at, err)
		}
	}
}

// TestJournalCompaction replaces rows until the file is compacted several times.
func TestJournalCompaction(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	rewrites, last := 0, int64(0)
	want := map[string]Row{}
	rounds := min(effort.Times(t, 20), 60)
	for round := range rounds {
		var changes []Change
		for i := range 3000 {
			row := Row{RequestsPerUnit: uint32(round*10_000 + i)}
			changes = append(changes, put("customer", strconv.Itoa(i), row))
			want["customer/"+strconv.Itoa(i)] = row
		}
		apply(t, j, changes...)
		if flush(t, j); j.size > 3<<20 {
			t.Fatalf("the file has %d bytes", j.size)
		}
		if j.size < last {
			rewrites++
		}
		last = j.size
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := open(t, dir)
	if got := rowsOf(again.table.Rows()); rewrites < rounds/20 || !maps.Equal(got, want) {
		t.Errorf("the file was rewritten %d times; its %d rows differ from %d", rewrites, len(got), len(want))
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("files %q are left", left)
	}
}

// TestJournalRejects checks that invalid changes have no effect.
func TestJournalRejects(t *testing.T) {
	j, _ := open(t, t.TempDir())
	apply(t, j, put("x", "1", Row{RequestsPerUnit: 5}))
	size := j.size
	var many []Change
	for i := range MaxNames + 1 {
		many = append(many, put("x", strconv.Itoa(i), Row{Name: "n" + strconv.Itoa(i)}))
	}
	for name, tt := range map[string]struct {
		columns []string
		changes []Change
		want    error
	}{
		"other columns": {[]string{"a"}, []Change{{Values: []string{"x"}}}, ErrColumns},
		"one value":     {[]string{"a", "b"}, []Change{{Values: []string{"x"}}}, nil},
		"a NUL":         {[]string{"a", "b"}, []Change{put("x", "\x00", Row{})}, nil},
		"many names":    {[]string{"a", "b"}, many, ErrFull},
	} {
		if err := j.Apply(tt.columns, tt.changes, false); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if flush(t, j); j.size != size || j.table.Rows().Len() != 1 {
		t.Errorf("%d rows, %d bytes, want %d", j.table.Rows().Len(), j.size, size)
	}
}

// TestFirstChangeFails checks that a file gets the columns of the next change if the first change,
// for which the file was created, failed.
func TestFirstChangeFails(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	if err := j.rewrite([]string{"c"}); err != nil { // as if the disk was full afterwards
		t.Fatal(err)
	}
	apply(t, j, put("x", "1", Row{RequestsPerUnit: 5}))
	if again, _ := open(t, dir); !slices.Equal(*again.table.Rows().Columns(), []string{"a", "b"}) || !maps.Equal(rowsOf(again.table.Rows()), rowsOf(j.table.Rows())) {
		t.Errorf("columns %q, rows %v", *again.table.Rows().Columns(), rowsOf(again.table.Rows()))
	}
}

// TestFileBeforeTheFirstChange checks that the first change does not overwrite a file that another
// process created.
func TestFileBeforeTheFirstChange(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	history(t, other)
	content, err := os.ReadFile(filepath.Join(other, "t.table"))
	if err != nil {
		t.Fatal(err)
	}
	j, _ := open(t, dir)
	path := filepath.Join(dir, "t.table")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	err = j.Apply([]string{"a", "b"}, []Change{put("x", "1", Row{})}, false)
	if got, _ := os.ReadFile(path); !errors.Is(err, ErrNotSaved) || !bytes.Equal(got, content) {
		t.Errorf("Apply = %v; the file has %d bytes, had %d", err, len(got), len(content))
	}
}

// TestJournalErrorsNameTheFile checks that errors name the file and a remedy.
func TestJournalErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.table")
	if err := os.WriteFile(path, []byte("key,number\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, opened := OpenJournal(New("t"), dir, nil)
	for _, err := range []error{opened, ReadJournal(New("t"), dir)} {
		if err == nil || !strings.Contains(err.Error(), path+": the file is not a sluice table") || !strings.Contains(err.Error(), "restore the file from a copy, or move it away") {
			t.Errorf("%v, want an error with the file and a remedy", err)
		}
	}
}

// FuzzJournal checks that no file crashes the reader, and that accepted content can be written and
// read again.
func FuzzJournal(f *testing.F) {
	b := appendRecord([]byte(journalMagic), appendKey(nil, []string{"a", "b"}))
	b = appendRecord(b, []byte{rowsEnd})
	f.Add(b)
	changes := appendChange(nil, &Change{Values: []string{"x", "y"}, Row: Row{RequestsPerUnit: 5, Burst: 3, Unit: 2, Name: "gold"}})
	changes = appendChange(changes, &Change{Values: []string{"x", "z"}, Delete: true})
	f.Add(appendRecord(b, changes))
	f.Fuzz(func(t *testing.T, content []byte) {
		for at := len(journalMagic); at+recordHead <= len(content); at++ {
			// Valid checksums let the fuzzer reach the code after their check.
			n := int(content[at])
			if at+recordHead+n > len(content) {
				break
			}
			copy(content[at:], appendRecord(nil, content[at+recordHead:at+recordHead+n]))
			at += recordHead + n - 1
		}
		table := New("t")
		first, err := table.parse(content)
		if err != nil || first.rows == nil {
			return
		}
		rows := first.rows
		var out strings.Builder
		if _, err := writeRows(&out, *rows.Columns(), rows); err != nil {
			t.Fatal(err)
		}
		again, err := table.parse([]byte(out.String()))
		if err != nil || again.size != int64(out.Len()) || again.changes != rows.Len() || !maps.Equal(rowsOf(rows), rowsOf(again.rows)) {
			t.Fatal("written and read again: ", err, again, out.Len(), rows.Len())
		}
	})
}

// TestFullTable checks that rows of a full table can be changed and deleted, and that a deletion
// makes room for another row.
func TestFullTable(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	j.table.maxRows = 2
	apply(t, j, put("x", "1", Row{RequestsPerUnit: 1}), put("x", "2", Row{RequestsPerUnit: 2}))
	if err := j.Apply([]string{"a", "b"}, []Change{put("x", "3", Row{})}, false); !errors.Is(err, ErrFull) {
		t.Errorf("a row beyond the maximum: %v, want a full table", err)
	}
	apply(t, j, put("x", "2", Row{RequestsPerUnit: 4}))
	apply(t, j, Change{Values: []string{"x", "1"}, Delete: true})
	apply(t, j, put("x", "3", Row{RequestsPerUnit: 3}))
	want := map[string]Row{"x/2": {RequestsPerUnit: 4}, "x/3": {RequestsPerUnit: 3}}
	again, _ := open(t, dir)
	for _, rows := range []*Rows{j.table.Rows(), again.table.Rows()} {
		for _, key := range []string{"2", "3"} {
			if row, _ := rows.Get([]string{"x", key}); row != want["x/"+key] || rows.Len() != 2 {
				t.Errorf("row %s of %d is %v, want %v", key, rows.Len(), row, want["x/"+key])
			}
		}
	}
}

// TestUnusedNamesAreDropped checks that names of rows that were renamed, or rejected, do not count
// against the maximum, in this process and in one that reads the journal.
func TestUnusedNamesAreDropped(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	apply(t, j, put("x", "stays", Row{Name: "stays"}))
	for i := range 2*MaxNames + 10 {
		apply(t, j, put("x", "1", Row{Name: "n" + strconv.Itoa(i)}))
		if i == MaxNames-10 { // rejected after their names were reserved
			many := []Change{put("x", "y", Row{Name: "other"}), put("x", "\x00", Row{})}
			if err := j.Apply([]string{"a", "b"}, many, false); err == nil {
				t.Fatal("a value with a NUL byte was accepted")
			}
		}
	}
	again, _ := open(t, dir)
	for _, rows := range []*Rows{j.table.Rows(), again.table.Rows()} {
		for key, want := range map[string]string{"stays": "stays", "1": "n" + strconv.Itoa(2*MaxNames+9)} {
			if row, _ := rows.Get([]string{"x", key}); row.Name != want {
				t.Errorf("row %s has the name %q, want %q", key, row.Name, want)
			}
		}
	}
}

// TestJournalRowsDamaged truncates a compacted file at each byte, and flips each: its rows were durable
// before it got its name, so none may be lost without an error.
func TestJournalRowsDamaged(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	apply(t, j, put("x", "1", Row{RequestsPerUnit: 1}), put("x", "2", Row{RequestsPerUnit: 2, Name: "gold"}))
	j.writers.Wait()
	if err := j.rewrite(j.columns); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "t.table")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := len(journalMagic); at < len(whole); at++ {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x10
		for _, content := range [][]byte{whole[:at], flipped} {
			if _, err := New("t").parse(content); !errors.Is(err, ErrDamaged) {
				t.Fatalf("damaged at byte %d of %d: %v, want an error", at, len(whole), err)
			}
		}
	}
}

// TestJournalFileRemoved removes the file of a journal, and then replaces it, while rows are
// changed: no acknowledged change is lost, and the replacement is not overwritten.
func TestJournalFileRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.table")
	j, _ := open(t, dir)
	apply(t, j, put("x", "1", Row{RequestsPerUnit: 1}))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	apply(t, j, put("x", "2", Row{RequestsPerUnit: 2}))
	if again, _ := open(t, dir); !maps.Equal(rowsOf(again.table.Rows()), rowsOf(j.table.Rows())) {
		t.Errorf("the rows are %v, want %v", rowsOf(again.table.Rows()), rowsOf(j.table.Rows()))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.Apply([]string{"a", "b"}, []Change{put("x", "3", Row{})}, false); !errors.Is(err, ErrNotSaved) || j.table.Rows().Len() != 2 {
		t.Errorf("a row was put despite another file: %v, %d rows", err, j.table.Rows().Len())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	apply(t, j, put("x", "3", Row{RequestsPerUnit: 3}))
	if again, _ := open(t, dir); !maps.Equal(rowsOf(again.table.Rows()), rowsOf(j.table.Rows())) || again.table.Rows().Len() != 3 {
		t.Errorf("the rows are %v, want %v", rowsOf(again.table.Rows()), rowsOf(j.table.Rows()))
	}
}

// TestDeleteFromEmptyTable deletes rows that do not exist: after a restart the table still has its
// columns, or none.
func TestDeleteFromEmptyTable(t *testing.T) {
	apply := func(j *Journal, columns []string, changes ...Change) {
		t.Helper()
		if err := j.Apply(columns, changes, false); err != nil {
			t.Fatal(err)
		}
	}
	open := func(dir string) (*Table, *Journal) {
		t.Helper()
		table := New("t")
		j, _, err := OpenJournal(table, dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return table, j
	}
	customer := []string{"customer"}
	for _, other := range [][]string{{"user"}, {"user", "plan"}} {
		dir := t.TempDir()
		_, j := open(dir)
		apply(j, customer, Change{Values: []string{"a"}, Row: Row{RequestsPerUnit: 5}})
		apply(j, customer, Change{Values: []string{"a"}, Delete: true})
		apply(j, other, Change{Values: make([]string, len(other)), Delete: true})
		apply(j, customer, Change{Values: []string{"b"}, Row: Row{RequestsPerUnit: 5}})
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		table, j := open(dir)
		if columns := table.Rows().Columns(); !slices.Equal(*columns, customer) || table.Rows().Len() != 1 {
			t.Errorf("after a restart the table has %d rows with the columns %v, want one with %v", table.Rows().Len(), *columns, customer)
		}
		apply(j, customer, Change{Values: []string{"b"}, Delete: true})
		apply(j, other, Change{Values: other, Row: Row{RequestsPerUnit: 5}}) // an empty table gets new columns
		_ = j.Close()
	}
	table, j := open(t.TempDir())
	var many []Change
	for i := range 1100 { // enough for a compaction
		many = append(many, Change{Values: []string{strings.Repeat("x", 1000) + strconv.Itoa(i)}, Delete: true})
	}
	apply(j, customer, many...)
	if table.Rows().Columns() != nil || j.Close() != nil {
		t.Error("a table that never had a row has columns, or does not close")
	}
}

// TestJournalErrorNamesFile makes a write fail after the file was renamed.
func TestJournalErrorNamesFile(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	apply(t, j, put("x", "1", Row{}))
	j.writers.Wait()
	must.OK(t, os.Link(j.path, j.path+".tmp"))
	readOnly, err := os.Open(j.path + ".tmp")
	must.OK(t, err)
	_ = j.file.Close() // everything is saved
	j.file = readOnly
	err = j.Apply([]string{"a", "b"}, []Change{put("x", "2", Row{})}, false)
	if !errors.Is(err, ErrNotSaved) || !strings.Contains(err.Error(), "write "+j.path+":") {
		t.Errorf("the error is %q, want one that names %s", err, j.path)
	}
}
