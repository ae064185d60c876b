package tables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// rowsOf returns all rows by key, whose values are joined by slashes.
func rowsOf(r *Rows) map[string]Row {
	all := map[string]Row{}
	for values, row := range r.All() {
		all[strings.Join(values, "/")] = row
	}
	return all
}

// TestRead reads valid files.
func TestRead(t *testing.T) {
	one := map[string]Row{"acme": {RequestsPerUnit: 5}}
	all := map[string]Row{
		"/a/acme": {RequestsPerUnit: 500, Unit: rules.Minute, Burst: 20, Name: "gold"},
		"/a/bo":   {Unlimited: true},
		"//":      {},
	}
	for name, tt := range map[string]struct {
		text    string
		columns Columns
		want    map[string]Row
	}{
		"number alone":     {"customer,requests_per_unit\nacme,5\n", Columns{"customer"}, one},
		"no last line end": {"customer,requests_per_unit\nacme,5", Columns{"customer"}, one},
		"CRLF":             {"customer,requests_per_unit\r\nacme,5\r\n", Columns{"customer"}, one},
		"byte order mark":  {"\ufeffcustomer,requests_per_unit\nacme,5\n", Columns{"customer"}, one},
		"spaces":           {" customer , requests_per_unit\nacme, 5 \n", Columns{"customer"}, one},
		"quotes":           {"customer,requests_per_unit\n\"acme\",\"5\"\n", Columns{"customer"}, one},
		"quoted line ends": {"customer,requests_per_unit\n\"a\nc\"\"m,e\",5\n", Columns{"customer"}, map[string]Row{"a\nc\"m,e": {RequestsPerUnit: 5}}},
		"no rows":          {"customer,requests_per_unit\n", Columns{"customer"}, map[string]Row{}},
		"bytes":            {"customer,requests_per_unit\n\xff\xfe,5\n", Columns{"customer"}, map[string]Row{"\xff\xfe": {RequestsPerUnit: 5}}},
		"all": {
			"unit,path,requests_per_unit,customer,burst,unlimited,name\nMINUTE,/a,500,acme,20,false,gold\n,/a,,bo,,true,\n,/,0,,,,\n",
			Columns{"path", "customer"},
			all,
		},
		"booleans": {
			"customer,unlimited,requests_per_unit\na,TRUE,\nb,t,\nc,1,\nacme,FALSE,5\n",
			Columns{"customer"},
			map[string]Row{"a": {Unlimited: true}, "b": {Unlimited: true}, "c": {Unlimited: true}, "acme": {RequestsPerUnit: 5}},
		},
		"after empty lines": {"\ufeff\r\n\ncustomer,requests_per_unit\nacme,5\n", Columns{"customer"}, one},
	} {
		t.Run(name, func(t *testing.T) {
			table := New("t")
			rows, found := table.Read("t", strings.NewReader(tt.text))
			must.OK(t, found.Err())
			if diff := cmp.Diff(tt.want, rowsOf(rows)); diff != "" {
				t.Errorf("rows differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.columns, *rows.Columns()); diff != "" || rows.Len() != len(tt.want) {
				t.Errorf("%d rows, columns differ (-want +got):\n%s", rows.Len(), diff)
			}
		})
	}
}

// TestReadRejects checks the error and its position for each kind of invalid file.
func TestReadRejects(t *testing.T) {
	header := "customer,requests_per_unit,unit,burst,unlimited,name\n"
	for text, want := range map[string]string{
		"":                                                          "t:1:1: error: the file is empty; its first line must be a header, such as customer,requests_per_unit",
		"acme,500\n":                                                `t:1:1: error: the header "acme,500" has no column requests_per_unit; name key columns after entries of the rule, such as customer; the other columns are unit, burst, unlimited and name`,
		"customer,request_per_unit\n":                               `t:1:1: error: the header "customer,request_per_unit" has no column requests_per_unit (is "request_per_unit" a misspelling?); name key columns after entries of the rule, such as customer; the other columns are unit, burst, unlimited and name`,
		"\xff\xfea\x00,\x00":                                        "t:1:1: error: the file is UTF-16; write it as UTF-8",
		"\xfe\xff\x00a\x00":                                         "t:1:1: error: the file is UTF-16; write it as UTF-8",
		"requests_per_unit\n5\n":                                    "t:1:1: error: no key column; add one named after an entry of the rule, such as customer",
		"customer;requests_per_unit\nacme;5\n":                      `t:1:1: error: the header "customer;requests_per_unit" is one column; separate columns by commas`,
		"customer\trequests_per_unit\nacme\t5\n":                    `t:1:1: error: the header "customer\trequests_per_unit" is one column; separate columns by commas`,
		"a,a,requests_per_unit\n":                                   `t:1:1: error: duplicate column "a"`,
		"a,unit,unit,requests_per_unit":                             `t:1:1: error: duplicate column "unit"`,
		"a,,requests_per_unit\n":                                    `t:1:1: error: column "" is not a valid name of an entry`,
		"a,b,c,d,e,f,g,h,i,requests_per_unit\n":                     "t:1:1: error: 9 key columns; at most 8 are supported",
		header + "acme,many,,,,\n":                                  `t:2:6: error: requests_per_unit is "many"; it must be a whole number, 0 to 4294967295`,
		header + "acme,-1,,,,\n":                                    `t:2:6: error: requests_per_unit is "-1"; it must be a whole number, 0 to 4294967295`,
		header + "acme,4294967296,,,,\n":                            `t:2:6: error: requests_per_unit is "4294967296"; it must be a whole number, 0 to 4294967295`,
		header + "acme,,,,,\n":                                      "t:2:1: error: requests_per_unit is missing; write 0 to deny every request, or unlimited",
		header + "acme,5,minuet,,,\n":                               `t:2:8: error: unknown unit "minuet"; did you mean "minute"? (allowed: second, minute, hour, day, week, month, year)`,
		header + "acme,5,,0,,\n":                                    `t:2:9: error: burst is "0"; it must be a whole number, 1 to 4294967295`,
		header + "acme,5,,,yes,\n":                                  `t:2:10: error: unlimited is "yes"; it must be true or false`,
		header + "acme,5,,,true,\n":                                 "t:2:1: error: unlimited excludes requests_per_unit, unit and burst; remove them",
		header + "acme,5,,,,a\"b\n":                                 "t:2:12: error: invalid CSV: bare \" in non-quoted-field",
		header + "acme,5,,,,\"a\"\"b\"\n":                           `t:2:11: error: name "a\"b" must have at most 64 bytes and no quotes or control characters`,
		header + "acme,5,,,,gr\xf6\xdfe\n":                          `t:2:11: error: name "gr\xf6\xdfe" is not UTF-8`,
		header + "acme,5\n":                                         "t:2:1: error: the row must have 6 columns, like the header",
		header + "\"acme,5,,,,\n":                                   "t:2:13: error: invalid CSV: extraneous or missing \" in quoted-field",
		header + "a\x00,5,,,,\n":                                    `t:2:1: error: value "a\x00" contains a NUL byte`,
		header + strings.Repeat("a", 1025) + ",5,,,,\n":             "is longer than 1024 bytes",
		header + "a,5,,,,\nb,6,,,,\na,7,,,,\n":                      "t:4:1: error: duplicate key; first on line 2",
		header + "a,5,,,,\n\"" + strings.Repeat("b,5,,,,\n", 1<<17): "t:3:1: error: a row is longer than 64 KiB; is a quote not closed?",
		names(MaxNames + 1):                                         fmt.Sprintf("t:%d:1: error: the table has more than 1000 names; each is a series of metrics, and rows may share one", MaxNames+2),
	} {
		rows, found := New("t").Read("t", strings.NewReader(text))
		if rows != nil || found.Err() == nil || !strings.Contains(found.Err().Error(), want) {
			t.Errorf("%.100q: %v, %v, want %s", text, rows, found.Err(), want)
		}
	}
}

// names returns a file of n rows with different names.
func names(n int) string {
	var b strings.Builder
	b.WriteString("a,requests_per_unit,name\n")
	for i := range n {
		fmt.Fprintf(&b, "%d,1,n%d\n", i, i)
	}
	return b.String()
}

// TestReadBoundsErrors checks that a file with errors only does not fill the log.
func TestReadBoundsErrors(t *testing.T) {
	_, found := New("t").Read("t", strings.NewReader("a,requests_per_unit\n"+strings.Repeat("b,c\n", 1000)))
	if len(found) != maxErrors+1 || found[maxErrors].Message != "more than 20 errors; the rest is not shown" {
		t.Errorf("%d errors, the last %v", len(found), found[len(found)-1])
	}
	_, found = New("t").Read("t", strings.NewReader("a,requests_per_unit\n"+strings.Repeat("b,5\n", 1000)))
	if len(found) != maxErrors+1 {
		t.Errorf("%d errors for duplicate keys, want %d", len(found), maxErrors+1)
	}
}

// FuzzRead checks that files are rejected with a position, and that all rows of accepted files are
// found.
func FuzzRead(f *testing.F) {
	f.Add("customer,requests_per_unit,unit,burst,unlimited,name\nacme,5,day,1,,gold\nbo,,,,true,\n")
	f.Add("a,b,requests_per_unit\n\"x\ny\",z,0\n")
	f.Add("{\"a\":\"x\",\"requests_per_unit\":5}\n{\"a\":\"y\",\"unlimited\":true}\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, found := New("t").Read("t", strings.NewReader(text))
		if (rows == nil) != found.HasErrors() {
			t.Fatalf("%v, %v", rows, found)
		}
		for _, d := range found {
			if d.Pos.File != "t" || d.Pos.Line < 1 || d.Pos.Col < 1 || d.Message == "" {
				t.Errorf("an error without a position: %v", d)
			}
		}
		if rows == nil {
			return
		}
		n := 0
		for values, row := range rows.All() {
			n++
			if got, ok := rows.Get(values); !ok || got != row || len(values) != len(*rows.Columns()) {
				t.Errorf("Get(%q) = %v, %t, want %v", values, got, ok, row)
			}
		}
		if n != rows.Len() {
			t.Errorf("%d of %d rows were visited", n, rows.Len())
		}
	})
}
