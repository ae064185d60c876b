package answer

import (
	"bytes"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// restart replaces r by a new process with the old one's saved state.
func (r *reloaded) restart(rules string) {
	r.t.Helper()
	var file bytes.Buffer
	if _, err := r.service.table.Save(&file, r.now); err != nil {
		r.t.Fatal(err)
	}
	table, _, err := limiter.Load(&file, limiter.Options{Bytes: 1 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	r.tables = new(tables.Registry)
	r.service = NewService(Settings{Bounds: fillBounds(Bounds{})}, table, newMetrics(r.t))
	r.serve(rules)
}

// TestRestartReleasesLeases ends requests after a restart without their leases, while new requests
// acquire the same slots.
func TestRestartReleasesLeases(t *testing.T) {
	for _, rules := range []string{atMost16, reserve} {
		r := newReloaded(t, rules)
		old := r.begin(held)
		r.restart(rules)
		now := r.begin(held / 2)
		r.endRequests(old)
		if got := gathered(t, r.service, "sluice_leases_ignored_total"); got != held {
			t.Errorf("%v leases of before are ignored, want %d", got, held)
		}
		if got := gathered(t, r.service, "sluice_leases_active"); got != held/2 {
			t.Errorf("%v are in flight, want %d", got, held/2)
		}
		r.wantFull(held - held/2)
		r.endRequests(now[:1])
		r.wantFull(1)
	}
}
