package accesslog

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestW3C reads W3C logs with values, times and names of each kind.
func TestW3C(t *testing.T) {
	for name, test := range map[string]struct{ log, want string }{
		"quoted values": {
			"#Fields: date time c-ip cs(User-Agent) cs-uri-stem sc-status\n" +
				`2026-11-21 09:00:00 192.0.2.7 "curl/8 (x; ""y"")" /a 200` + "\n" +
				`2026-11-21 09:00:01 192.0.2.8 "" "/b c" 200` + "\n" +
				`2026-11-21 09:00:02 192.0.2.9 "curl/"8" /c 200` + "\n", `
09:00:00 | 192.0.2.7 | curl/8 (x; "y") | /a
09:00:01 | 192.0.2.8 | - | /b c
09:00:02 | 192.0.2.9 | "curl/"8" | /c`,
		},
		"quoted date and time": {
			"#Fields: date time c-ip cs-uri-stem\n  \n" +
				`"2026-11-21" "09:00:00" "192.0.2.7" "/a"` + "\n" + `2026-11-21 "09:00:01" 192.0.2.8 /b` + "\n", `
09:00:00 | 192.0.2.7 | - | /a
09:00:01 | 192.0.2.8 | - | /b`,
		},
		"an empty value at the end": {
			"#Fields: date time c-ip cs-uri-stem cs(User-Agent)\n2026-11-21\t09:00:00\t192.0.2.7\t/a\t\n", `
09:00:00 | 192.0.2.7 | - | /a`,
		},
		"date and time in separate columns": {
			"#Fields: time c-ip date cs-uri-stem\n09:00:00 192.0.2.7 2026-11-21 /a\n09:00:01 192.0.2.8 2026-11-21 /b\n", `
09:00:00 | 192.0.2.7 | - | /a
09:00:01 | 192.0.2.8 | - | /b`,
		},
		"local time": {
			"#Fields: date-local time-local c-ip cs-uri-stem\n2026-11-21 09:00:00 192.0.2.7 /a\n", `
09:00:00 | 192.0.2.7 | - | /a`,
		},
		"local time in addition to the time": {
			"#Fields: date-local time-local date time c-ip cs-uri-stem\n2026-11-21 10:00:00 2026-11-21 09:00:00 192.0.2.7 /a\n", `
09:00:00 | 192.0.2.7 | - | /a`,
		},
		"other names in a later header": {
			"#Fields: date time c-ip cs-uri-stem\n2026-11-21 09:00:00 192.0.2.7 /a\n" +
				"#Fields: date time s-ip cs-uri-stem c-ip cs(User-Agent)\n2026-11-21 09:00:01 10.0.0.1 /b 192.0.2.8 curl/8\n", `
09:00:00 | 192.0.2.7 | - | /a
09:00:01 | 192.0.2.8 | curl/8 | /b`,
		},
		"several spaces": {
			"#Fields: date time  c-ip   cs-uri-stem\n2026-11-21 09:00:00   192.0.2.7  /a\n", `
09:00:00 | 192.0.2.7 | - | /a`,
		},
		"tabs around an empty value": {
			"#Fields: date time c-ip cs(User-Agent) cs-uri-stem\n2026-11-21\t09:00:00\t192.0.2.7\t\t/a b\n", `
09:00:00 | 192.0.2.7 | - | /a b`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, counts := valuesOf(t, test.log, "auto", FieldRemote, "user-agent", ":path")
			if diff := cmp.Diff(strings.Split(strings.TrimPrefix(test.want, "\n"), "\n"), got); diff != "" || counts.Bad > 0 {
				t.Errorf("%+v; -want +got:\n%s", counts, diff)
			}
		})
	}
}

// TestW3CDates has times without a date. Their date is that of #Date: or the next day.
func TestW3CDates(t *testing.T) {
	const log = "#Date: 2026-11-21 09:00:01\n#Fields: time c-ip\n09:00:00 192.0.2.7\n23:59:59 192.0.2.8\n00:00:00 192.0.2.8\n" +
		"#Date: 2026-12-31 23:00:00\n#Fields: time c-ip\n23:00:00 192.0.2.9\n01:00:00 192.0.2.9\n#Date: 2026-11-21 00:30:00\n00:00:00 192.0.2.9\n#Date: \n00:00:00 192.0.2.9\n"
	const want = "2026-11-21T09:00:00Z 2026-11-21T23:59:59Z 2026-11-22T00:00:00Z 2026-12-31T23:00:00Z 2027-01-01T01:00:00Z 2026-11-21T00:00:00Z"
	f, err := Recognise([]Log{logOf(log)}, "auto")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prepare(); err != nil {
		t.Fatal(err)
	}
	var got []string
	counts := f.NewReader(math.MaxInt64, func(l *Line) error {
		got = append(got, time.Unix(0, l.At).UTC().Format(time.RFC3339))
		return nil
	}).Read(Chunk{Bytes: []byte(log)})
	if all := strings.Join(got, " "); all != want || counts.Bad != 1 || !strings.Contains(counts.FirstBad[0].Reason, "and no #Date: precedes it") {
		t.Errorf("%s, %+v\nwant %s", all, counts, want)
	}
	// A later chunk uses the preceding date.
	var read []string
	yield := trackComments(func(c Chunk) error {
		f.NewReader(math.MaxInt64, func(l *Line) error {
			read = append(read, time.Unix(0, l.At).UTC().Format(time.RFC3339))
			return nil
		}).Read(c)
		return nil
	})
	for _, chunk := range strings.SplitAfter(log, "\n") {
		if err := yield(Chunk{Bytes: []byte(chunk)}); err != nil {
			t.Fatal(err)
		}
	}
	if all := strings.Join(read, " "); all != want {
		t.Errorf("line by line: %s\nwant %s", all, want)
	}
}

// TestW3CColumnsChangeBetweenChunks changes the columns repeatedly in a log of several chunks, each
// read by another reader.
func TestW3CColumnsChangeBetweenChunks(t *testing.T) {
	var log strings.Builder
	const parts, lines = 10, 3000
	for part := range parts {
		if part%2 == 0 {
			log.WriteString("#Fields: date time c-ip cs-uri-stem\n")
		} else {
			log.WriteString("#Fields: date time cs-uri-stem c-ip\n")
		}
		for range lines {
			if part%2 == 0 {
				log.WriteString("2026-11-21 09:00:00 192.0.2.7 /a\n")
			} else {
				log.WriteString("2026-11-21 09:00:00 /a 192.0.2.7\n")
			}
		}
	}
	f, err := Recognise([]Log{logOf(log.String())}, "auto")
	if err != nil {
		t.Fatal(err)
	}
	path := f.Select(":path")
	if err := f.Prepare(); err != nil {
		t.Fatal(err)
	}
	read, chunks := 0, 0
	err = f.ReadChunks(strings.NewReader(log.String()), func(c Chunk) error {
		chunks++
		counts := f.NewReader(1<<62, func(l *Line) error {
			if string(l.Value(path)) != "/a" {
				return fmt.Errorf("the path is %q", l.Value(path))
			}
			read++
			return nil
		}).Read(c)
		if counts.Bad > 0 {
			t.Errorf("chunk %d: %+v", chunks, counts)
		}
		c.Free()
		return nil
	})
	if err != nil || read != parts*lines || chunks < 3 {
		t.Errorf("%d requests in %d chunks, %v; want %d", read, chunks, err, parts*lines)
	}
}

// TestW3CErrors has unreadable logs and lines.
func TestW3CErrors(t *testing.T) {
	for _, log := range []string{"#Date: 21-Nov-2026 09:00:00\n#Fields: time c-ip\n09:00:00 192.0.2.7\n", "#Fields: time c-ip\n09:00:00 192.0.2.7\n", "#Fields: date c-ip\n2026-11-21 192.0.2.7\n"} {
		if _, err := Recognise([]Log{logOf(log)}, "auto"); err == nil || !strings.Contains(err.Error(), "configure the server to log both") {
			t.Errorf("%q: %v, want an error about the missing date", log, err)
		}
	}
	for _, line := range []string{"2026-11-21 09:00:00", "2026-11-21 09:00:00 192.0.2.7 200 more", "2026-11-21 soon 192.0.2.7 200", "- - 192.0.2.7 200"} {
		got, counts := valuesOf(t, "#Fields: date time c-ip sc-status\n2026-11-21 09:00:00 192.0.2.7 200\n"+line+"\n", "auto", FieldRemote)
		if len(got) != 1 || counts.Bad != 1 {
			t.Errorf("%q: %q, %+v, want one bad line", line, got, counts)
		}
	}
}

// TestIISComments has the comments of W3C logs in IIS' own format; they are not bad lines.
func TestIISComments(t *testing.T) {
	const line = "192.0.2.7, -, 11/21/26, 9:00:00, W3SVC2, SERVER, 10.0.0.1, 4502, 163, 3223, 200, 0, GET, /a, -,\n"
	const comments = "#Software: Microsoft Internet Information Services 6.0\n#Version: 1.0\n#Date: 2026-11-21 09:00:00\n"
	if got, counts := valuesOf(t, comments+line+comments+line+"# none\n", "auto", FieldRemote); len(got) != 2 || counts.Bad != 1 || counts.Read != 3 {
		t.Errorf("%q, %+v, want two requests and one bad line", got, counts)
	}
}
