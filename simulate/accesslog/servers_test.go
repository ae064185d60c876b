package accesslog

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func logOf(text string) Log {
	return Log{Name: "log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// readAll reads a log and calls use with each line and the slots of the fields.
func readAll(t *testing.T, text, format string, fields []string, use func(l *Line, slots []int)) (counts Counts) {
	t.Helper()
	f, err := Recognise([]Log{logOf(text)}, format)
	if err != nil {
		t.Fatal(err)
	}
	var slots []int
	for _, name := range fields {
		slots = append(slots, f.Select(name))
	}
	if err := f.Prepare(); err != nil {
		t.Fatal(err)
	}
	r := f.NewReader(math.MaxInt64, func(l *Line) error {
		use(l, slots)
		return nil
	})
	err = f.ReadChunks(strings.NewReader(text), func(c Chunk) error {
		of := r.Read(c)
		counts.Add(&of, "log", counts.Rows)
		c.Free()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// valuesOf returns the fields of each line of a log, "-" if absent and "?" if ambiguous.
func valuesOf(t *testing.T, text, format string, fields ...string) (lines []string, counts Counts) {
	t.Helper()
	counts = readAll(t, text, format, fields, func(l *Line, slots []int) {
		values := []string{time.Unix(0, l.At).UTC().Format("15:04:05.999")}
		for _, slot := range slots {
			switch {
			case l.IsAmbiguous(slot):
				values = append(values, "?")
			case l.Value(slot) == nil:
				values = append(values, "-")
			default:
				values = append(values, string(l.Value(slot)))
			}
		}
		lines = append(lines, strings.Join(values, " | "))
	})
	return lines, counts
}

// TestRecogniseServerLogs reads a log of each kind without its format.
func TestRecogniseServerLogs(t *testing.T) {
	for _, test := range serverLogs {
		t.Run(test.name, func(t *testing.T) {
			got, _ := valuesOf(t, test.log, "auto", FieldRemote, ":method", ":path", ":authority", "user-agent", "status")
			if diff := cmp.Diff(strings.Split(strings.TrimPrefix(test.want, "\n"), "\n"), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestTextFormatsAreDelimited checks that the table's formats are unambiguous, except for Envoy's
// and Zoraxy's, which escape nothing.
func TestTextFormatsAreDelimited(t *testing.T) {
	for _, test := range textFormats {
		f, err := newTextFormat(test.format)
		if err != nil {
			t.Fatalf("%s: %v", test.format, err)
		}
		if f.hasVariables && !f.delimited && !strings.Contains(test.format, "[useragent: $http_user_agent]") {
			t.Errorf("%s: a line is ambiguous", test.format)
		}
	}
	for _, prefix := range prefixes {
		if f, err := newTextFormat(prefix); err != nil || !f.delimited {
			t.Errorf("%s: a line is ambiguous, or %v", prefix, err)
		}
	}
}

// TestNginxVariables reads lines by custom formats of nginx.
func TestNginxVariables(t *testing.T) {
	for _, test := range []struct{ format, log, fields, want string }{
		{`$time_iso8601 $remote_addr "$http_x_user" $request_uri`, `2026-11-21T09:00:00+00:00 192.0.2.7 "al" /a`, "x-user :path", "09:00:00 | al | /a"},
		{`$msec|${remote_addr}|$http_x_user`, `1795251600.5|192.0.2.7|a|b`, "x-user downstream_remote_address", "09:00:00.5 | a|b | 192.0.2.7"},
		// Unquoted client values are ambiguous.
		{`$msec $http_x_user $http_x_plan`, `1795251600.5 al bo pro`, "x-user x-plan", "09:00:00.5 | ? | ?"},
		{`$msec $http_x_user $http_x_plan`, `1795251600.5 al pro`, "x-user x-plan", "09:00:00.5 | al | pro"},
		{`$msec $http_x_user $status`, `1795251600.5 al bo 200`, "x-user status", "09:00:00.5 | al bo | 200"},
		{`$msec $request $http_x_user`, `1795251600.5 GET /a HTTP/1.1 al`, ":path x-user", "09:00:00.5 | ? | ?"},
		{`$time_local "$request" "$http_user_agent"`, `21/Nov/2026:09:00:00 +0000 "GET / HTTP/1.1" "a \"b\" c"`, ":method user-agent", `09:00:00 | GET | a \"b\" c`},
	} {
		got, _ := valuesOf(t, test.log, test.format, strings.Fields(test.fields)...)
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%s by %s is %q, want %q", test.log, test.format, got, test.want)
		}
	}
	if _, err := Recognise([]Log{logOf("x\n")}, "$msec$status"); err == nil || !strings.Contains(err.Error(), "no text between msec and status") {
		t.Errorf("format with adjacent variables: %v", err)
	}
	if _, err := Recognise([]Log{logOf("x\n")}, "$status"); err == nil || !strings.Contains(err.Error(), "add $time_local, $time_iso8601 or $msec to --format") {
		t.Errorf("format without a time: %v", err)
	}
}

// TestRecogniseMinority checks that other lines at the start, and a few lines with additional
// fields, do not prevent recognition.
func TestRecogniseMinority(t *testing.T) {
	started := strings.Repeat("starting\n", 40)
	const line = `192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8" "192.0.2.9"`
	for name, log := range map[string]string{
		"text": started + strings.Repeat(line+"\n", 5),
		"JSON": started + strings.Repeat(`{"time":"2026-11-21T09:00:00Z","x_forwarded_for":"192.0.2.9"}`+"\n", 5),
	} {
		got, counts := valuesOf(t, log, "auto", FieldXFF)
		if len(got) < 5 || got[0] != "09:00:00 | 192.0.2.9" || counts.Bad != counts.Read-len(got) {
			t.Errorf("%s: %d lines, the first is %q, %d bad lines", name, len(got), got[:min(1, len(got))], counts.Bad)
		}
	}
	timed := strings.Repeat(line+" 0.1\n", 400) + strings.Repeat(line+" 0.1 more\n", 5)
	if f, err := Recognise([]Log{logOf(timed)}, "auto"); err != nil || !f.Has("request_time") {
		t.Errorf("the format of 400 of 405 lines is not recognised: %v", err)
	}
	if _, err := Recognise([]Log{logOf(strings.Repeat(started, 2) + line + "\n")}, "auto"); err == nil {
		t.Error("a format of one of 81 lines is recognised")
	}
}

// TestColumnsOfEmbeddedLines checks that the column of an error counts from the start of the
// complete line.
func TestColumnsOfEmbeddedLines(t *testing.T) {
	for _, test := range []struct{ good, bad, at string }{
		{
			`[pod/web/nginx] 192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			`[pod/web/nginx] 192.0.2.7 - - [31/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5`, "31/Nov",
		},
		{
			`[pod/web/nginx] 192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5`,
			`[pod/web/nginx] 192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" many 5`, "many",
		},
		{`web | {"time":"2026-11-21T09:00:00Z"}`, `web | {"time":"2026-11-21T09:00:00Z",}`, "}"},
		{`{"log":"{\"time\":1}"}`, `{"log":"x"}`, `"x"`},
	} {
		_, counts := valuesOf(t, test.good+"\n"+test.good+"\n"+test.bad+"\n", "auto")
		want := strings.LastIndex(test.bad, test.at) + 1
		if counts.Bad != 1 || counts.FirstBad[0].Column != want || counts.FirstBad[0].Line != 3 {
			t.Errorf("%s: %+v, want column %d", test.bad, counts, want)
		}
	}
}

// TestBadRecordsOfOneLine has unreadable records of an OpenTelemetry line between readable ones.
func TestBadRecordsOfOneLine(t *testing.T) {
	attributes := func(at, path string) string {
		return `{"timeUnixNano":"` + at + `","attributes":[{"key":"path","value":{"stringValue":"` + path + `"}}]}`
	}
	body := func(text string) string { return `{"body":{"stringValue":"` + text + `"}}` }
	line := func(second string) string {
		return `192.0.2.7 - - [21/Nov/2026:09:00:0` + second + ` +0000] \"GET /` + second + ` HTTP/1.1\" 200 5`
	}
	for name, test := range map[string]struct {
		records []string
		want    []string
		columns []string // the text at the reported columns
	}{
		"attributes": {
			[]string{attributes("1795251600000000000", "/1"), attributes("soon", "/2"), attributes("0", "/3"), attributes("1795251603000000000", "/4")},
			[]string{"09:00:00 | /1", "09:00:03 | /4"},
			[]string{`"soon"`, `{"resourceLogs"`},
		},
		"text": {
			[]string{body(line("1")), body("starting"), body(line("3"))},
			[]string{"09:00:01 | /1", "09:00:03 | /3"},
			[]string{`{"stringValue":"starting"`},
		},
	} {
		log := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + strings.Join(test.records, ",") + "]}]}]}\n"
		got, counts := valuesOf(t, log, "auto", ":path")
		if diff := cmp.Diff(test.want, got); diff != "" || counts.Read != len(test.records) || counts.Bad != len(test.records)-len(test.want) {
			t.Errorf("%s: %+v; -want +got:\n%s", name, counts, diff)
		}
		for i, bad := range counts.FirstBad {
			if !strings.HasPrefix(log[bad.Column-1:], test.columns[i]) {
				t.Errorf("%s: %+v is at %.20q, want %q", name, bad, log[bad.Column-1:], test.columns[i])
			}
		}
	}
}

// TestSelectDerivedFieldTwice checks that a part of the request line keeps its slot.
func TestSelectDerivedFieldTwice(t *testing.T) {
	f, err := Recognise([]Log{logOf(serverLogs[0].log)}, "auto")
	if err != nil {
		t.Fatal(err)
	}
	if a, b, c := f.Select(":path"), f.Select(":path"), f.Select(":method"); a != b || a == c || a < 0 {
		t.Errorf("slots are %d, %d and %d", a, b, c)
	}
}

// TestNearestFormat checks the hint for lines of unknown formats.
func TestNearestFormat(t *testing.T) {
	for line, want := range map[string]string{
		`192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 five "-" "curl/8"`:                                                                         `(most similar: the common log format, $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent; differs at column 65)`,
		`[2026-11-21T09:00:00Z] "GET / HTTP/1.1" 200 - 0 28 1 0 "192.0.2.1"`:                                                                                        "(most similar: Envoy's format, [%START_TIME%]",
		`192.0.2.1 - - [21/Nov/2026:10:00:00 +0100] shop.example "GET /a HTTP/1.1" 200 5 0.003 - "curl/8" 10.0.0.1:80`:                                              "(most similar: APISIX's format, ",
		`1795251600.250    921 192.0.2.7 TCP_MISS 507 GET http://shop.example/a - HIER_DIRECT/10.0.0.1 text/html`:                                                   "(most similar: Squid's format, ",
		`Nov 21 09:00:00 lb haproxy[7]: 192.0.2.7:5000 [21/Nov/2026:09:00:00.000] web~ shop/a shop.example 0/0/1/2/3 200 0 - - ---- 1/1/0/0/0 0/0 "GET / HTTP/1.1"`: "(most similar: HAProxy's format, ",
		`192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1", 200, 5`:                                                                                       "differs at column 60)",
		`[192.0.2.7 0.5] 192.0.2.8 - - [2026-11-21T09:00:00] "GET /a HTTP/2" 201 5 - "curl/8"`:                                                                      "(most similar: the common log format, $remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent; differs at column 32)",
		"once upon a time":    "unknown log format; give",
		"#Software: IIS 10.0": "the first lines are comments without #Fields:",
	} {
		_, err := Recognise([]Log{logOf(line + "\n")}, "auto")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), line[:10]) || !strings.HasPrefix(err.Error(), "log:1: ") {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestW3CHeaderIsNotBad checks that CloudFront's header is not a bad line, although its lines are
// recognised without it.
func TestW3CHeaderIsNotBad(t *testing.T) {
	for _, test := range serverLogs {
		if test.name != "CloudFront without its header" {
			continue
		}
		header := "#Version: 1.0\n#Fields: date time a b c-ip" + strings.Repeat(" x", strings.Count(test.log, "\t")-4) + "\n"
		got, counts := valuesOf(t, header+test.log, "auto", FieldRemote)
		if len(got) != 1 || got[0] != "09:00:00 | 192.0.2.7" || counts.Bad != 0 {
			t.Errorf("%q, %+v", got, counts)
		}
		return
	}
	t.Error("serverLogs has no CloudFront log without its header")
}

// TestNestedFields reads fields of nested objects in any order.
func TestNestedFields(t *testing.T) {
	log := `{"time":"2026-11-21T09:00:00Z","a":{"b":{"c":"1"},"d":["x"],"e.f":2},"g.h":"3","d":"4"}
{"a":{"d":["x","y"],"b":{"c":null}},"time":"2026-11-21T09:00:00Z","d":"5"}
{"time":"2026-11-21T09:00:00Z","a":"text","b":{"c":"no"},"d":{}}
{"time":"2026-11-21T09:00:00Z","a":{"b":{"c":"6","c":"7"},"b":"8"}}
`
	got, counts := valuesOf(t, log, "auto", "a.b.c", "a.d", "a.e.f", "g.h", "d", "a.b")
	want := []string{
		`09:00:00 | 1 | x | 2 | 3 | 4 | {"c":"1"}`,
		`09:00:00 | - | ["x","y"] | - | - | 5 | {"c":null}`,
		`09:00:00 | - | - | - | - | {} | -`,
		`09:00:00 | 7 | - | - | - | - | 8`,
	}
	if diff := cmp.Diff(want, got); diff != "" || counts.Bad > 0 {
		t.Errorf("%d bad lines; -want +got:\n%s", counts.Bad, diff)
	}
	escaped := `{"\u0074ime":"2026-11-21T09:00:00Z","user\u002dagent":"curl/8","\/x":"1"}` + "\n"
	if got, _ := valuesOf(t, escaped+escaped, "auto", "user-agent", "/x"); len(got) != 2 || got[1] != "09:00:00 | curl/8 | 1" {
		t.Errorf("keys with escapes: %q", got)
	}
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	if _, err := Recognise([]Log{logOf(deep)}, "auto"); err == nil {
		t.Error("an object nested 100 levels deep is accepted")
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	for _, test := range serverLogs {
		f, err := Recognise([]Log{logOf(test.log)}, "auto")
		if err != nil {
			t.Fatal(err)
		}
		f.Select(FieldRemote)
		f.Select(":path")
		if err := f.Prepare(); err != nil {
			t.Fatal(err)
		}
		r := f.NewReader(math.MaxInt64, func(*Line) error { return nil })
		lines := bytes.Split([]byte(strings.TrimSpace(test.log)), []byte("\n"))
		line := lines[0]
		for _, l := range lines { // the first request, not a comment or another message
			if r.line.clear(); f.parser.read(l, r.line, r.onRequest) == nil {
				line = l
			}
		}
		r.readLine(line)
		if n := testing.AllocsPerRun(100, func() { r.readLine(line) }); n > 0 {
			t.Errorf("%s: reading a line allocates %v times", test.name, n)
		}
	}
}
