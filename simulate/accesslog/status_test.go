package accesslog

import (
	"strings"
	"testing"
)

// TestStatusesAreNumbers holds that a field with the name of the status is not one where it has a word.
func TestStatusesAreNumbers(t *testing.T) {
	for _, test := range []struct {
		name, log, status string
		recorded          Recorded
	}{
		{"another field has it", `{"time":"2026-11-21T09:00:00Z","status":"error","response_code":429}` + "\n", "429", Denied},
		{"no other field has it", `{"time":"2026-11-21T09:00:00Z","status":"error"}` + "\n", "error", NotRecorded},
		{"HAProxy's -1", `192.0.2.7:5000 [21/Nov/2026:09:00:00.000] web~ shop/a 0/0/1/-1/3 -1 0 - - SH-- 1/1/0/0/0 0/0 "GET / HTTP/1.1"` + "\n", "-1", Admitted},
	} {
		readAll(t, test.log, "auto", []string{fieldStatus}, func(l *Line, slots []int) {
			if got := string(l.Value(slots[0])); got != test.status || l.Recorded() != test.recorded {
				t.Errorf("%s: status %s, recorded %d, want %s, %d", test.name, got, l.Recorded(), test.status, test.recorded)
			}
		})
	}
}

// TestAStatusElsewhereIsAnotherFormat holds that a log with a value more is not read as HAProxy's, since
// another value would be the status.
func TestAStatusElsewhereIsAnotherFormat(t *testing.T) {
	line := `192.0.2.7:5000 [21/Nov/2026:09:00:00.000] web~ shop/a shop.example 0/0/1/2/3 429 0 - - ---- 1/1/0/0/0 0/0 "GET / HTTP/1.1"` + "\n"
	_, err := Recognise([]Log{logOf(line)}, "auto")
	if want := "the nearest is HAProxy's format, "; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
