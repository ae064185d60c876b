package descriptors

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

func TestDump(t *testing.T) {
	s := load(t, Options{}, `
domain: z
descriptors:
  - key: b
    value: x
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 5, count_refused: false}
    descriptors:
      - {key: c, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 7, unit_multiplier: 10}}
  - key: a
    rate_limits:
      - {unit: second, requests_per_unit: 1}
      - {unit: second, requests_per_unit: 3, shadow: true}
      - {unit: week, requests_per_unit: 2, count_refused: true}
  - {key: u, rate_limit: {unlimited: true}}
`, `
domain: a
all_or_nothing: true
descriptors:
  - {key: k, rate_limit: {unit: day, requests_per_unit: 9}}
`)
	const want = `a.k: unit=DAY requests_per_unit=9, shadow_mode: false, quota_mode: false, all_or_nothing: true
z.b_x: unit=HOUR requests_per_unit=5, shadow_mode: false, quota_mode: true, count_refused: false
z.b_x.c: unit=MINUTE requests_per_unit=7, shadow_mode: true, quota_mode: false, unit_multiplier: 10
z.a: unit=SECOND requests_per_unit=1, shadow_mode: false, quota_mode: false
z.a: unit=WEEK requests_per_unit=2, shadow_mode: false, quota_mode: false, count_refused: true
z.a: unit=SECOND requests_per_unit=3, shadow_mode: false, quota_mode: false, shadow: true
z.u: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, unlimited: true
`
	var got strings.Builder
	must.OK(t, s.Dump(&got))
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("Dump (-want +got):\n%s", diff)
	}
	full := errors.New("disk full")
	if err := s.Dump(failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("Dump to a full disk = %v, want %v", err, full)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
