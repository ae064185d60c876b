package accesslog

import (
	"math"
	"testing"
)

func FuzzInstant(f *testing.F) {
	for _, s := range []string{"2026-11-21T09:00:00.123Z", "2026-11-21T09:00:00+01:00", "1763715600", "1763715600.5", "1763715600123", "9223372036854775807", "2262-01-01T00:00:00Z"} {
		f.Add([]byte(s))
	}
	clock, err := newStrftime("%d/%b/%Y:%H:%M:%S.%f %z")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if at, err := parseInstant(b); err == nil && at < 0 {
			t.Errorf("parseInstant(%q) = %d", b, at)
		}
		if at, err := clock.parse(b); err == nil && at < -math.MaxInt64/2 {
			t.Errorf("parse(%q) = %d", b, at)
		}
	})
}
