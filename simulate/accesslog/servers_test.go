package accesslog

import (
	"bytes"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
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
	err = ReadChunks(strings.NewReader(text), func(c Chunk) error {
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

// TestTextFormatsAreDelimited checks that the table's formats are unambiguous, except for Envoy's,
// which escapes nothing.
func TestTextFormatsAreDelimited(t *testing.T) {
	for _, test := range textFormats {
		f, err := newTextFormat(test.format)
		if err != nil {
			t.Fatalf("%s: %v", test.format, err)
		}
		if f.hasVariables && !f.delimited {
			t.Errorf("%s: a line is ambiguous", test.format)
		}
	}
	for _, prefix := range prefixes {
		if f, err := newTextFormat(prefix); err != nil || !f.delimited {
			t.Errorf("%s: a line is ambiguous, or %v", prefix, err)
		}
	}
}

// TestFormatsInDocumentation reads lines of HAProxy and of AWS's application load balancers by the
// format strings in docs/simulate.md.
func TestFormatsInDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ format, log, want string }{
		{
			`$remote_addr [$time_local] $frontend $server $timers $status $bytes $cookie $set_cookie $termination $connections $queues "$request"`,
			`192.0.2.7:33317 [21/Nov/2026:09:00:00.655] http-in~ static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /a?b HTTP/1.1"
192.0.2.7:33318 [21/Nov/2026:09:00:01.000] http-in http-in/<NOSRV> -1/-1/-1/-1/5 -1 0 - - CR-- 1/1/0/0/0 0/0 "<BADREQ>"
192.0.2.7:33319 [21/Nov/2026:09:00:02.000] http-in static/srv1 10/0/30/69/+109 200 +2750 - - ---- 1/1/1/1/0 0/0 "GET http://shop.example/a HTTP/1.1"
`,
			`
09:00:00.655 | 192.0.2.7:33317 | GET | /a?b | - | - | 200
09:00:01 | 192.0.2.7:33318 | - | - | - | - | -1
09:00:02 | 192.0.2.7:33319 | GET | /a | shop.example | - | 200`,
		},
		{
			`$type $end_time $elb $remote_addr $target $t1 $t2 $t3 $status $target_status $received $sent "$request" "$http_user_agent" ` +
				`$cipher $protocol $group "$trace" "$domain" "$cert" $priority $start_time $rest`,
			`https 2026-11-21T09:00:02.186641Z app/shop/50dc6c495c0c9188 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://shop.example:443/a?b HTTP/1.1" "curl/8" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/shop/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "shop.example" "arn:aws:acm:eu-west-1:123456789012:certificate/1" 1 2026-11-21T09:00:00.364000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_1
h2 2026-11-21T09:00:02.186641Z app/shop/50dc6c495c0c9188 192.0.2.8:2817 - -1 -1 -1 429 - 0 57 "GET https://shop.example:443/?x HTTP/2.0" "-" - - - "Root=1-5" "-" "-" 1 2026-11-21T09:00:01.000000Z "waf" "-" "-" "-" "-" "-" "-"
http 2026-11-21T09:00:02.186641Z app/shop/50dc6c495c0c9188 192.0.2.9:2817 - -1 -1 -1 400 - 0 57 "- http://shop.example:80- " "-" - - - "-" "-" "-" - 2026-11-21T09:00:02.000000Z "-" "-" "-" "-" "-" "-" "-" TID_2
`,
			`
09:00:00.364 | 192.0.2.7:2817 | GET | /a?b | shop.example:443 | curl/8 | 200
09:00:01 | 192.0.2.8:2817 | GET | /?x | shop.example:443 | - | 429
09:00:02 | 192.0.2.9:2817 | - | - | - | - | 400`,
		},
	} {
		got, counts := valuesOf(t, test.log, test.format, FieldRemote, ":method", ":path", ":authority", "user-agent", "status")
		if diff := cmp.Diff(strings.Split(strings.TrimPrefix(test.want, "\n"), "\n"), got); diff != "" || counts.Bad > 0 {
			t.Errorf("%s: %+v; -want +got:\n%s", test.format, counts, diff)
		}
		if !strings.Contains(string(page), "--format '"+test.format+"'") {
			t.Errorf("docs/simulate.md lacks %s", test.format)
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
	if _, err := Recognise([]Log{logOf("x\n")}, "$status"); err == nil || !strings.Contains(err.Error(), "$time_local, $time_iso8601 or $msec in --format") {
		t.Errorf("format without a time: %v", err)
	}
}

// TestRecogniseMinority checks that other lines at the start, and a few lines with additional
// fields, do not prevent recognition.
func TestRecogniseMinority(t *testing.T) {
	started := strings.Repeat("starting\n", 40)
	const line = `192.0.2.7 - - [21/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "192.0.2.9"`
	const object = `{"time":"2026-11-21T09:00:00Z","user_agent":"192.0.2.9"}` + "\n"
	for name, log := range map[string]string{
		"text":                started + strings.Repeat(line+"\n", 5),
		"JSON":                started + strings.Repeat(object, 5),
		"more JSON than text": line + "\n" + strings.Repeat(object, 5),
	} {
		got, counts := valuesOf(t, log, "auto", "user-agent")
		if len(got) < 5 || got[0] != "09:00:00 | 192.0.2.9" || counts.Bad != counts.Read-len(got) {
			t.Errorf("%s: %d lines, the first is %q, %d bad lines", name, len(got), got[:min(1, len(got))], counts.Bad)
		}
	}
	short := strings.TrimSuffix(line, ` "-" "192.0.2.9"`)
	if f, err := Recognise([]Log{logOf(strings.Repeat(line+"\n", 400) + strings.Repeat(short+"\n", 5))}, "auto"); err != nil || !f.Has("http_user_agent") {
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
		{`[pod/web] {"time":"2026-11-21T09:00:00Z"}`, `[pod/web] {"time":"2026-11-21T09:00:00Z",}`, "}"},
	} {
		_, counts := valuesOf(t, test.good+"\n"+test.good+"\n"+test.bad+"\n", "auto")
		want := strings.LastIndex(test.bad, test.at) + 1
		if counts.Bad != 1 || counts.FirstBad[0].Column != want || counts.FirstBad[0].Line != 3 {
			t.Errorf("%s: %+v, want column %d", test.bad, counts, want)
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

// TestUnknownFormat checks that the error shows the start of the line.
func TestUnknownFormat(t *testing.T) {
	_, err := Recognise([]Log{logOf("\nonce upon a time\n")}, "auto")
	if want := `log:2: unknown log format; give the format string`; err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), `: "once upon a time"`) {
		t.Errorf("error %v, want %q", err, want)
	}
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
		`09:00:00 | 1 | ["x"] | 2 | 3 | 4 | {"c":"1"}`,
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
			if r.line.clear(); f.parser.read(l, r.line) == nil {
				line = l
			}
		}
		r.readLine(line)
		if n := must.AllocsPerRun(100, func() { r.readLine(line) }); n > 0 {
			t.Errorf("%s: reading a line allocates %v times", test.name, n)
		}
	}
}
