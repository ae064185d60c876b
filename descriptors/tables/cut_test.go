package tables

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// TestReadWarnsOfTruncatedFile reads files that do not end with a newline: the warning names the
// last row.
func TestReadWarnsOfTruncatedFile(t *testing.T) {
	for text, want := range map[string]string{
		"customer,requests_per_unit\ny,12\nx,1":               `t:3:1: warning: the file does not end with a newline: the row of customer="x" may be truncated, and rows may be missing; end the last line`,
		"\n\n customer,requests_per_unit\r\ny,12\r\nx,1\r":    `t:5:1: warning: the file does not end with a newline: the row of customer="x"`,
		"customer,requests_per_unit\n\"a\nb\",1\n\"x\ny\",12": `t:4:1: warning: the file does not end with a newline: the row of customer="x\ny"`,
		"path,requests_per_unit,customer\n/,1,":               `t:2:1: warning: the file does not end with a newline: the row of path="/", customer=""`,
		"customer,requests_per_unit":                          `t:1:1: warning: the file does not end with a newline: its header may be truncated`,
		"customer,requests_per_unit\ny,12\nx,1\n":             "",
		"customer,requests_per_unit\r\nx,1\r\n":               "",
		"customer,requests_per_unit\nx,1\n\n\n\n\n\r\n":       "",
	} {
		rows, found := New("t").Read("t", strings.NewReader(text))
		if rows == nil {
			t.Errorf("%q is rejected: %v", text, found)
			continue
		}
		got := ""
		if len(found) > 0 {
			got = found[0].String()
		}
		if len(found) > 1 || !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%q: %v, want %s", text, found, want)
		}
	}
}

// checkPrefix reads the first cut bytes of a file and checks that they are rejected, cause a
// warning, or contain only rows of the complete file.
func checkPrefix(t *testing.T, text string, cut int, whole *Rows) {
	t.Helper()
	rows, found := New("t").Read("t", strings.NewReader(text[:cut]))
	if rows == nil || len(found) > 0 {
		return
	}
	for values, row := range rows.All() {
		if want, ok := whole.Get(values); !ok || row != want {
			t.Errorf("%q, %d of %d bytes: row %q is %v without a warning, want %v, %t", text, cut, len(text), values, row, want, ok)
		}
	}
}

// TestTruncatedFile truncates files at each byte.
func TestTruncatedFile(t *testing.T) {
	for _, text := range []string{
		"customer,requests_per_unit\ny,12\nx,123\n",
		"\ufeff\r\n customer ,requests_per_unit\r\ny,12\r\n\r\nx,123",
		"unit,path,requests_per_unit,customer,burst,unlimited,name\nMINUTE,/a,500,acme,20,false,gold\n,/a,,bo,,true,\n,/,0,,,,silver\n",
		"customer,requests_per_unit,unit\n\"a\nb\",12,\"day\"\n\"c\"\"\n\n,d\",34,month\n",
		"requests_per_unit,customer\n12,\n34,x\n56,\"x\ny\"\n",
	} {
		whole, found := New("t").Read("t", strings.NewReader(text))
		if whole == nil {
			t.Errorf("%q is rejected: %v", text, found)
			continue
		}
		for cut := range text {
			checkPrefix(t, text, cut, whole)
		}
	}
}

// TestEmptyLines inserts empty lines before and after each line of a file, each time more bytes
// than a row may have. They must not affect the line numbers of messages.
func TestEmptyLines(t *testing.T) {
	const n = 3 * maxRecordBytes
	empty := strings.Repeat("\n", n/2) + strings.Repeat("\r\n", n/2)
	want := map[string]Row{"a": {RequestsPerUnit: 1}, "b": {RequestsPerUnit: 2}}
	lines := "customer,requests_per_unit\na,1\nb,2\n"
	text := empty + strings.ReplaceAll(lines, "\n", "\n"+empty)
	rows, found := New("t").Read("t", strings.NewReader(text))
	if rows == nil || len(found) > 0 || !maps.Equal(rowsOf(rows), want) {
		t.Errorf("with empty lines: %v, want the rows %v", found, want)
	}
	rows, found = New("t").Read("t", strings.NewReader(text+"a,1\nb,2\n"))
	if rows != nil || len(found) != 2 {
		t.Errorf("with duplicate rows: %v", found)
	}
	rows, found = New("t").Read("t", strings.NewReader(text+"bad"))
	if at := "t:" + strconv.Itoa(strings.Count(text, "\n")+1) + ":"; rows != nil || len(found) != 1 || !strings.HasPrefix(found[0].String(), at) {
		t.Errorf("with empty lines and an invalid row: %v, want an error at %s", found, at)
	}
	text = empty + "customer,requests_per_unit\n" + empty + "a,1\n\"b\n" + empty + "\",2\n"
	rows, found = New("t").Read("t", strings.NewReader(text))
	if at := "t:" + strconv.Itoa(2*n+3) + ":1: error: a row is longer than 64 KiB"; rows != nil || len(found) != 1 || !strings.HasPrefix(found[0].String(), at) {
		t.Errorf("empty lines between quotes: %v, want %s", found, at)
	}
}

// TestLongRows checks that the size of a row is bounded independently of its position in the read
// buffer.
func TestLongRows(t *testing.T) {
	header := "a,b,c,d,e,f,g,h,requests_per_unit\n"
	for before := range 50 {
		text := header + strings.Repeat("\"\n\",,,,,,,"+strconv.Itoa(before)+",1\n", 1) + strings.Repeat("\n", 97*before)
		for length, want := range map[int]bool{maxRecordBytes - 8192: true, maxRecordBytes + 8192: false} {
			// Spaces around a number are ignored.
			rows, found := New("t").Read("t", strings.NewReader(text+",,,,,,,,5"+strings.Repeat(" ", length)+"\n"))
			if (rows != nil) != want {
				t.Errorf("a row of %d bytes after %d bytes: %v", length, len(text), found)
			}
		}
	}
}

// TestReadErrors checks that no rows are returned if the reader fails, even if it returns its error
// only once and then io.EOF.
func TestReadErrors(t *testing.T) {
	for _, text := range []string{"customer,requests_per_unit\ny,12\nx,1\n", "\n\n"} {
		for _, long := range []string{text, text + strings.Repeat("\n", 1<<17)} {
			once := io.MultiReader(strings.NewReader(long), iotest.ErrReader(io.ErrUnexpectedEOF))
			rows, found := New("t").Read("t", onceFailing(once))
			if rows != nil || len(found) != 1 || !strings.HasSuffix(found[0].String(), ":1: error: unexpected EOF") {
				t.Errorf("%q, %d bytes: %v", text, len(long), found)
			}
		}
	}
}

// onceFailing returns a reader that returns the error of in once, and then io.EOF.
func onceFailing(in io.Reader) io.Reader {
	var failed bool
	return readerFunc(func(p []byte) (int, error) {
		if failed {
			return 0, io.EOF
		}
		n, err := in.Read(p)
		failed = err != nil
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// expected returns the rows of a file as read by encoding/csv. ok is false if the file may be
// rejected.
func expected(text string) (rows map[string]Row, ok bool) {
	records, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\ufeff"))).ReadAll()
	if utf16 := strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff"); utf16 || err != nil || len(records) == 0 || len(text) > maxRecordBytes {
		return nil, false
	}
	number := slices.Index(records[0], fieldNumber)
	if number < 0 || CheckColumns(slices.Delete(slices.Clone(records[0]), number, number+1)) != nil {
		return nil, false
	}
	rows = map[string]Row{}
	for _, record := range records[1:] {
		n, err := strconv.ParseUint(record[number], 10, 32)
		values := slices.Delete(record, number, number+1)
		key := strings.Join(values, "\x00")
		if _, twice := rows[key]; twice || err != nil || checkValues(values) != nil {
			return nil, false
		}
		rows[key] = Row{RequestsPerUnit: uint32(n)}
	}
	return rows, true
}

// FuzzCSV compares the reader with encoding/csv, and truncates valid files.
func FuzzCSV(f *testing.F) {
	f.Add("customer,requests_per_unit\ny,12\nx,123\n", uint16(35))
	f.Add("\ufeffrequests_per_unit,a,b\r\n5,\"x\r\",z\r\n\r\n6,\"\"\"\n,\",\r\n", uint16(40))
	f.Add("\n\na,b,requests_per_unit\n\"x\n\ny\",z,0\n,,7", uint16(30))
	f.Fuzz(func(t *testing.T, text string, cut uint16) {
		rows, found := New("t").Read("t", strings.NewReader(text))
		if rows != nil {
			checkPrefix(t, text, int(cut)%(len(text)+1), rows)
		}
		want, ok := expected(text)
		if !ok {
			return
		}
		if rows == nil {
			t.Fatalf("%q is rejected: %v", text, found)
		}
		got := map[string]Row{}
		for values, row := range rows.All() {
			got[strings.Join(values, "\x00")] = row
		}
		if !maps.Equal(got, want) {
			t.Errorf("%q: rows %v, want %v", text, got, want)
		}
		if warned := slices.ContainsFunc(found, func(d rules.Diagnostic) bool { return d.Severity == rules.Warning }); warned == strings.HasSuffix(text, "\n") {
			t.Errorf("%q: %v", text, found)
		}
	})
}
