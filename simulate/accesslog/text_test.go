package accesslog

import (
	"errors"
	"strings"
	"testing"
)

// read reads a line by a format and returns the given fields: "?" if ambiguous, "-" if absent.
func read(t *testing.T, format, line string, fields ...string) ([]string, error) {
	t.Helper()
	f, err := newTextFormat(format)
	if err != nil {
		t.Fatal(err)
	}
	of := newFormat(f)
	var slots []int
	for _, name := range fields {
		slots = append(slots, of.Select(name))
	}
	if err := of.Prepare(); err != nil {
		t.Fatal(err)
	}
	v := newLine(of.layout)
	if err := f.parse([]byte(line), v); err != nil {
		return nil, err
	}
	var got []string
	for _, slot := range slots {
		switch {
		case v.IsAmbiguous(slot):
			got = append(got, "?")
		case v.values[slot] == nil:
			got = append(got, "-")
		default:
			got = append(got, string(v.values[slot]))
		}
	}
	return got, nil
}

func TestTextLines(t *testing.T) {
	const head = `[2026-11-22T09:00:00.123Z] "GET /a?b HTTP/1.1" 200 - 0 28 1 0 `
	for _, test := range []struct{ name, format, line, fields, want string }{
		{"default", envoyFormat, head + `"192.0.2.1" "curl/8" "id" "a.example" "10.0.0.1:80"`, "status :path x-forwarded-for user-agent :authority", "200|/a?b|192.0.2.1|curl/8|a.example"},
		{"absent", envoyFormat, head + `"-" "-" "id" "a.example" "-"`, "flags x-forwarded-for upstream_host", "-|-|-"},
		{"quotes within a value", envoyFormat, head + `"192.0.2.1" "a "b" c" "id" "a.example" "-"`, "x-forwarded-for user-agent :authority", `192.0.2.1|a "b" c|a.example`},
		{"values that contain the separator", envoyFormat, head + `"192.0.2.1" "a" "b" "id" "a.example" "-"`, "status :path x-forwarded-for user-agent :authority upstream_host", `200|/a?b|?|?|?|-`},
		{"a value that begins with the separator", envoyFormat, head + `" "x" "a" "id" "a.example" "-"`, "status x-forwarded-for user-agent", `200|?|a`},
		{"a path that contains a status", envoyFormat, `[2026-11-22T09:00:00.123Z] "GET /a" 500 HTTP/1.1" 200 - 0 28 1 0 "-" "-" "-" "-" "-"`, "status :path", `200|/a" 500`},
		{"NUL and invalid UTF-8", envoyFormat, head + "\"192.0.2.1\" \"a\x00\xff\" \"id\" \"a.example\" \"-\"", "user-agent", "a\x00\xff"},
		{"istio", istioFormat, `[2026-11-22T09:00:00.123Z] "GET / HTTP/1.1" 429 RL request_rate_limited - "-" 0 28 1 - "-" "a" "id" "a.example" "-" outbound|80||a - 10.0.0.1:80 192.0.2.1:5000 - default`, "status flags downstream_remote_address route_name", "429|RL|192.0.2.1:5000|default"},
		{"own", `%START_TIME(%s.%3f)% u=%REQ(X-User)%;p=%REQ(:path)%`, `1700000000.123 u=al;p=/x`, "time x-user :path", "1700000000.123|al|/x"},
		{"a custom format with two readings", `%START_TIME(%s.%3f)% u=%REQ(X-User)%;p=%REQ(:path)%`, `1700000000.123 u=al;p=;p=/x`, "time x-user :path", "1700000000.123|?|?"},
		{"percent", `%%%START_TIME%%%`, `%2026-11-22T09:00:00Z%`, "time", "2026-11-22T09:00:00Z"},
		{"metadata", `%START_TIME% %DYNAMIC_METADATA(envoy.filters.http.ratelimit)% "%REQ(USER-AGENT)%"`, `2026-11-22T09:00:00Z {"a":"} \" x"} "u"`, "metadata user-agent", `{"a":"} \" x"}|u`},
		{"metadata with many separators", `%START_TIME% %DYNAMIC_METADATA(envoy.filters.http.ratelimit)% "%REQ(USER-AGENT)%"`, `2026-11-22T09:00:00Z {"a":"` + strings.Repeat(" ", 100) + `"} "u"`, "user-agent", `u`},
		{"no metadata", `%START_TIME% %DYNAMIC_METADATA(envoy.filters.http.ratelimit)% "%REQ(USER-AGENT)%"`, `2026-11-22T09:00:00Z - "u"`, "metadata user-agent", `-|u`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := read(t, test.format, test.line, strings.Fields(test.fields)...)
			if strings.Join(got, "|") != test.want || err != nil {
				t.Errorf("read(%s) = %q, %v, want %q", test.line, got, err, test.want)
			}
		})
	}
}

func TestTextLinesOfAnotherFormat(t *testing.T) {
	for _, line := range []string{"", "x", `[2026`, `[2026-11-22T09:00:00.123Z] "GET / HTTP/1.1" 200 - 0 28 1 0 "-" "-" "-" "-" "-`, `[t] "GET / HTTP/1.1" x - 0 28 1 0 "-" "-" "-" "-" "-"`} {
		got, err := read(t, envoyFormat, line, "status")
		var at *LineError
		if err == nil || !errors.As(err, &at) {
			t.Errorf("read(%q) = %q, %v, want a *LineError", line, got, err)
		}
	}
	// The time for a hostile line is bounded.
	if got, err := read(t, envoyFormat, `[t] "GET / HTTP/1.1" 200 - 0 28 1 0 `+strings.Repeat(`" "`, 1000), "user-agent"); err == nil && got[0] != "?" {
		t.Errorf("read(quotes) = %q, want ambiguous values", got)
	}
}

func TestInvalidFormats(t *testing.T) {
	for format, want := range map[string]string{
		"x":                           "want auto, json",
		"%START_TIME":                 "unterminated",
		"%START_TIME%%REQ(A)%":        "no text between",
		"%START_TIME% %REQ(A)%%PATH%": "no text between",
		"%START_TIMES% %PATH%":        `%START_TIMES% is not an operator of Envoy; for one of your own extensions, write %REQ(ANY)%; did you mean "START_TIME"?`,
		"%start_time%":                "not an operator",
		"%REQ(A%":                     "unterminated",
	} {
		if _, err := newTextFormat(format); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("newTextFormat(%q) = %v, want %q", format, err, want)
		}
	}
	if _, err := newTimeFormat("%H:%M"); err == nil {
		t.Error("newTimeFormat(%H:%M) = nil, want an error")
	}
	if _, err := newTimeFormat("%Y-%m-%dT%H:%M:%S.%Q"); err == nil {
		t.Error("newTimeFormat(%Q) = nil, want an error")
	}
}
