package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// TestFormats simulates the same four requests in each format.
func TestFormats(t *testing.T) {
	const call = `{"domain":"shop","descriptors":[{"entries":["user=al"]}]}`
	stamp := func(i int) string { return noon.Add(time.Duration(i) * time.Second).Format(time.RFC3339Nano) }
	nanos := func(i int) int64 { return noon.Add(time.Duration(i) * time.Second).UnixNano() }
	lines := func(line func(i, status int) string) string {
		return line(0, 200) + line(1, 200) + line(2, 200) + line(3, 429)
	}
	for _, test := range []struct {
		name, log, format string
		// descriptor is empty if the log contains the descriptors.
		descriptor string
	}{
		{"json of Envoy Gateway", lines(func(i, status int) string {
			return fmt.Sprintf(`{"start_time":%q,":authority":"a","response_code":%d,"response_flags":null,"user-agent":"a\u006c","x":{"y":[1,{"z":"}"}]}}`+"\n", stamp(i), status)
		}), "auto", "user={user-agent}"},
		{"json of Istio", lines(func(i, status int) string {
			return fmt.Sprintf(`{"start_time":%q,"authority":"al","response_code":%d,"user_agent":"-"}`+"\n", stamp(i), status)
		}), "auto", "user={:authority}"},
		{"json with names", lines(func(i, status int) string {
			return fmt.Sprintf(`{"ts":%d,"code":"%d","who":"al"}`+"\n", nanos(i)/1e6, status)
		}), "json time=ts status=code", "user={who}"},
		{"json with descriptors", lines(func(i, status int) string {
			return fmt.Sprintf(`{"start_time":%q,"response_code":%d,"asked":%s}`+"\n", stamp(i), status, call)
		}) + fmt.Sprintf(`{"start_time":%q,"response_code":200,"asked":null}`+"\n", stamp(4)), "auto", ""},
		{"text with descriptors", lines(func(i, status int) string {
			return fmt.Sprintf("%d.000000000 %d %s\n", nanos(i)/1e9, status, call)
		}), "%START_TIME(%s.%9f)% %RESPONSE_CODE% %DYNAMIC_METADATA(envoy.filters.http.ratelimit)%", ""},
		{"requests", lines(func(i, status int) string {
			return fmt.Sprintf(`{"time":%q,"status":%d,"domain":"shop","descriptors":[{"entries":[["user","al"]],"hits":1}]}`+"\n", stamp(i), status)
		}), "requests", ""},
		{"json with other metadata", lines(func(i, status int) string {
			return fmt.Sprintf(`{"start_time":%q,"response_code":%d,"metadata":{"pod":"web-0"},"who":"al"}`+"\n", stamp(i), status)
		}), "auto", "user={who}"},
		{"json with descriptors and other metadata", lines(func(i, status int) string {
			return fmt.Sprintf(`{"start_time":%q,"response_code":%d,"metadata":{"pod":"web-0"},"asked":%s}`+"\n", stamp(i), status, call)
		}), "auto", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := Options{Logs: []accesslog.Log{logOf("log", test.log)}, Rules: compile(t, perUser), Format: test.format, Now: now}
			if test.descriptor != "" {
				o.Templates = []*Template{newTemplate(t, test.descriptor)}
			}
			report, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if report.Requests != 4 || report.Bad != 0 || report.Recorded == nil || report.Recorded.Agree != 4 || report.Recorded.Denied != 1 || report.Rules.Keys != 1 {
				t.Errorf("%d requests, %d bad lines %v, recorded %+v, %d keys", report.Requests, report.Bad, report.FirstBad, report.Recorded, report.Rules.Keys)
			}
		})
	}
}

// TestFieldByEitherName selects a field by its name in the log and by sluice's name.
func TestFieldByEitherName(t *testing.T) {
	at := noon.Format(time.RFC3339)
	for format, log := range map[string]string{
		"json": fmt.Sprintf(`{"ts":%q,"code":"429"}`, at),
	} {
		found := simulateUsers(t, func(o *Options) {
			o.Format, o.ShowValues = format+" time=ts status=code", true
			o.Templates = []*Template{newTemplate(t, "user={code}")}
		}, logOf("log", log))
		if found.Recorded == nil || found.Recorded.Denied != 1 || found.Rules.Limits[0].TopKeys[0].Name != "user=429" {
			t.Errorf("%s: recorded %+v, rules %+v", format, found.Recorded, found.Rules)
		}
	}
}

// TestInsufficientLogs checks errors and their remedies.
func TestInsufficientLogs(t *testing.T) {
	for _, test := range []struct{ name, log, format, descriptor, want string }{
		{"nothing", "", "auto", "user={x}", "log: no lines"},
		{"prose", "once upon a time\n", "auto", "user={x}", "unknown log format"},
		{"no time", `{"status":200}` + "\n", "auto", "user={x}", "no known time field; specify it with --format 'json time=FIELD'; the first lines have status"},
		{"an unknown time field", `{"status":200}` + "\n", "json time=ts", "user={x}", "time=ts: the first lines do not have this field; they have status"},
		{"an unknown field", `{"time":1}` + "\n", "auto", "user={x}", "{x}: unknown field; the log has time"},
		{"a misspelt field", `{"time":1,"request":{"client_ip":"a"}}` + "\n", "auto", "user={request.client_id}", `the log has time, request, request.client_ip; did you mean "request.client_ip"?`},
		{"no descriptors", `{"time":1}` + "\n", "auto", "", "the log has no descriptors"},
		{"no JSON", "x\n", "json", "user={x}", "no line is a JSON object"},
		{"no line", `{"time":"x"}` + "\n", "auto", "user={time}", "no line can be read"},
		{"no value", usersLine(noon, 200, "-"), users, "user={x-user}", "no line results in a descriptor"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := Options{Logs: []accesslog.Log{logOf("log", test.log)}, Rules: compile(t, perUser), Format: test.format, Now: now}
			if test.descriptor != "" {
				o.Templates = []*Template{newTemplate(t, test.descriptor)}
			}
			_, err := Run(t.Context(), o)
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(test.want)) {
				t.Errorf("Run() = %v, want %q", err, test.want)
			}
		})
	}
}

func TestTemplates(t *testing.T) {
	for _, test := range []struct{ template, line, want string }{
		{"k={:path|path}", "/a?b=c", "k=/a"},
		{"k={:path|path|lower}", "/A?b=c", "k=/a"},
		{"k=x{:path}y", "/a", "k=x/ay"},
		{"k=1,l={:path}", "/a", "k=1,l=/a"},
		{"k={:path|ip}", "192.0.2.1:80", "k=192.0.2.1"},
		{"k={:path|ip}", "[2001:db8::1]:80", "k=2001:db8::1"},
		{"k={:path|prefix:24:64}", "192.0.2.9", "k=192.0.2.0/24"},
		{"k={:path|prefix:24:64}", "2001:db8::1", "k=2001:db8::/64"},
		{"k={:path|prefix:24:64}", "nobody", ""},
		{"k={:path|xff:1}", "192.0.2.1, 192.0.2.2", "k=192.0.2.2"},
		{"k={:path|xff:2|prefix:8:8}", "192.0.2.1, 198.0.2.2", "k=192.0.0.0/8"},
		{"k={:path|xff:3}", "192.0.2.1, 198.0.2.2", ""},
		{"k={:path}", "-", ""},
	} {
		set := compile(t, "{domain: shop, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 9}, descriptors: [{key: l, rate_limit: {unit: day, requests_per_unit: 9}}]}]}")
		report, err := Run(t.Context(), Options{
			Logs: []accesslog.Log{logOf("log", "2026-11-21T12:00:00Z \""+test.line+"\"\n")}, Rules: set, Format: `%START_TIME% "%REQ(:PATH)%"`,
			Templates: []*Template{newTemplate(t, test.template)}, Now: now, ShowValues: true,
		})
		got := ""
		if err == nil {
			got = report.Rules.Limits[0].TopKeys[0].Name
		}
		if got != test.want {
			t.Errorf("%s of %q is %q (%v), want %q", test.template, test.line, got, err, test.want)
		}
	}
	for _, text := range []string{"", "k={", "k={}", "k={a|b}", "k={a|prefix}", "k={a|prefix:33:1}", "k={a|xff:0}", "={a}"} {
		if _, err := ParseTemplate(text); err == nil {
			t.Errorf("ParseTemplate(%q) = nil, want an error", text)
		}
	}
}

// TestSeveralLogs has several logs. If the format of one differs from the first nonempty one, the
// error names both.
func TestSeveralLogs(t *testing.T) {
	text := strings.Repeat(`[2026-11-21T09:00:00.123Z] "GET / HTTP/1.1" 200 - 0 28 1 0 "192.0.2.1" "al" "id" "a.example" "10.0.0.1:80"`+"\n", 2)
	const json = `{"start_time":"2026-11-21T09:00:00Z","user-agent":"al"}` + "\n"
	for _, tt := range []struct {
		name   string
		logs   []string
		format string
		want   string // "" if all lines are readable
	}{
		{"alike", []string{"", text, "\n", text}, "auto", ""},
		{"JSON", []string{json, json}, "auto", ""},
		{"marked", []string{"\ufeff" + json, "\ufeff" + json}, "auto", ""},
		{"prose in the first log", []string{"\nonce upon a time\n", text}, "auto", "log0:2: unknown log format; give the format string of Envoy or nginx with --format, such as '%START_TIME% %REQ(:PATH)%' or '$time_local $request_uri': \"once upon a time\""},
		{"prose in the second log", []string{text, "\n\nonce upon a time\n"}, "auto", `log1:3: the format differs from that of log0:1 (Envoy's format); simulate logs of different formats separately: "once upon a time"`},
		{"JSON after text", []string{text, json}, "auto", `log1:1: the format differs from that of log0:1 (Envoy's format); `},
		{"text after JSON", []string{json, text}, "auto", `log1:1: the format differs from that of log0:1 (JSON); `},
		{"no time", []string{"", `{"a":"b"}` + "\n"}, "auto", "log1:1: no known time field; "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Rules: compile(t, perUser), Format: tt.format, Now: now, Templates: []*Template{newTemplate(t, "user={user-agent}")}}
			for i, log := range tt.logs {
				o.Logs = append(o.Logs, logOf(fmt.Sprint("log", i), log))
			}
			report, err := Run(t.Context(), o)
			switch {
			case tt.want != "":
				if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
					t.Errorf("Run() = %v, want %q", err, tt.want)
				}
			case err != nil || report.Bad != 0 || report.Requests < 2:
				t.Errorf("Run() = %+v, %v, want all lines read", report, err)
			}
		})
	}
}
