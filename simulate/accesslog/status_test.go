package accesslog

import (
	"strings"
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
		{"HAProxy's -1", `192.0.2.7:5000 [21/Nov/2026:09:00:00.000] web~ shop/a 0/0/1/-1/3 -1 0 - - SH-- 1/1/0/0/0 0/0 "GET / HTTP/1.1"` + "\n", "-1", Admitted},
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
		"connections of a classic load balancer": {
			`2026-11-21T09:00:00.25Z shop 192.0.2.7:2817 10.0.0.1:80 0.1 0.1 0.1 200 200 0 29 "GET http://shop.example:80/a HTTP/1.1" "curl/8" - -
2026-11-21T09:00:01.25Z shop 192.0.2.8:2817 10.0.0.1:80 0.1 0.1 0.1 - - 82 305 "- - - " "-" - -
`, Counts{Rows: 2, Read: 2, NoRequest: 1},
		},
	} {
		counts := readAll(t, test.log, "auto", nil, func(*Line, []int) {})
		if diff := cmp.Diff(test.want, counts); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestMisplacedStatus checks that a log with an additional value is not read as HAProxy's, because
// another value would be the status.
func TestMisplacedStatus(t *testing.T) {
	shifted := `192.0.2.7:5000 [21/Nov/2026:09:00:00.000] web~ shop/a shop.example 0/0/1/2/3 429 0 - - ---- 1/1/0/0/0 0/0 "GET / HTTP/1.1"` + "\n"
	for _, line := range []string{shifted, strings.Replace(shifted, "shop.example ", "  ", 1)} {
		_, err := Recognise([]Log{logOf(line)}, "auto")
		if want := "(most similar: HAProxy's format, "; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}
