package accesslog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStatusFieldIsNumeric checks that a field named like the status is not used if it contains
// words.
func TestStatusFieldIsNumeric(t *testing.T) {
	for _, test := range []struct {
		name, log, status string
		recorded          Recorded
	}{
		{"another field has the status", `{"time":"2026-11-21T09:00:00Z","status":"error","response_code":429}` + "\n", "429", Denied},
		{"no other field has the status", `{"time":"2026-11-21T09:00:00Z","status":"error"}` + "\n", "error", NotRecorded},
		{"HAProxy's -1", `{"time":"2026-11-21T09:00:00Z","status":-1}` + "\n", "-1", Admitted},
	} {
		readAll(t, test.log, "auto", []string{fieldStatus}, func(l *Line, slots []int) {
			if got := string(l.Value(slots[0])); got != test.status || l.Recorded() != test.recorded {
				t.Errorf("%s: status %s, recorded %d, want %s, %d", test.name, got, l.Recorded(), test.status, test.recorded)
			}
		})
	}
}

// TestLinesWithoutARequest checks that lines without a request are skipped and counted, but that
// requests with only a status are not bad lines.
func TestLinesWithoutARequest(t *testing.T) {
	for name, test := range map[string]struct {
		log  string
		want Counts
	}{
		"TCP in Istio's text": {
			`[2026-11-21T09:00:00.000Z] "GET /a HTTP/1.1" 200 - via_upstream - "-" 0 5 1 1 "-" "curl/8" "id" "shop" "10.0.0.1:80" out 10.0.0.2:1 10.0.0.1:80 192.0.2.7:1 - default
[2026-11-21T09:00:01.000Z] "- - -" 0 - - - "-" 1 5 1 - "-" "-" "-" "-" "10.0.0.1:80" out 10.0.0.2:1 10.0.0.1:80 192.0.2.7:1 - -
[2026-11-21T09:00:02.000Z] "- - HTTP/1.1" 400 DPE http1.codec_error - "-" 0 5 1 - "-" "-" "-" "-" "-" - - 10.0.0.1:80 192.0.2.7:1 - -
`, Counts{Rows: 3, Read: 3, NoRequest: 1},
		},
		"TCP in Istio's JSON": {
			`{"start_time":"2026-11-21T09:00:00Z","method":"GET","path":"/","response_code":200,"response_flags":"-"}
{"start_time":"2026-11-21T09:00:00Z","method":null,"path":null,"response_code":0,"response_flags":"UF"}
`, Counts{Rows: 2, Read: 2, NoRequest: 1},
		},
		"messages without the time of requests": {
			`{"start_time":"2026-11-21T09:00:00Z","method":"GET","path":"/","response_code":200}
{"time":"2026-11-21T09:00:00Z","level":"info","msg":"started"}
`, Counts{Rows: 2, Read: 2, NoRequest: 1},
		},
		"lines without a status": {
			`{"time":"2026-11-21T09:00:00Z","method":"GET"}
{"time":"2026-11-21T09:00:00Z","path":"/"}
`, Counts{Rows: 2, Read: 2},
		},
	} {
		counts := readAll(t, test.log, "auto", nil, func(*Line, []int) {})
		if diff := cmp.Diff(test.want, counts); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
