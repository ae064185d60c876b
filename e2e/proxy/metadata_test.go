package proxy_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// wholeSeconds compares durations after rounding them up to seconds, as headers do.
var wholeSeconds = cmp.Comparer(func(a, b float64) bool { return math.Ceil(a) == math.Ceil(b) })

var startLogged = share("logged", `
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 1, count_refused: false } }
`, listener{
	routes:    everyUser,
	accessLog: "ACCESS %RESPONSE_CODE% %RESPONSE_FLAGS% %DYNAMIC_METADATA(envoy.filters.http.ratelimit)%",
})

// TestAccessLogMetadata has Envoy log the decisions of sluice for admitted and denied requests.
func TestAccessLogMetadata(t *testing.T) {
	p, _ := startLogged(t)
	p.get(t, "/", "x-user: al")
	denied := p.get(t, "/", "x-user: al")
	var got []string
	must.OK(t, p.WaitLine(t.Context(), func(line string) bool {
		if entry, found := strings.CutPrefix(line, "ACCESS "); found {
			got = append(got, entry)
		}
		return len(got) == 2
	}))
	want := []struct {
		code     string
		decision object
	}{
		{"200 - ", object{"rule": "user", "limit": "1/year", "used": 1.0, "retry_after": 0.0, "charged": 1.0}},
		{"429 RL ", object{"rule": "user", "limit": "1/year", "used": 1.0, "retry_after": float64(denied.number("Retry-After")), "charged": 0.0}},
	}
	for i, w := range want {
		text, found := strings.CutPrefix(got[i], w.code)
		if !found {
			t.Errorf("entry %d is %q, want it to begin with %q", i+1, got[i], w.code)
			continue
		}
		var metadata struct{ Sluice object }
		if err := json.Unmarshal([]byte(text), &metadata); err != nil {
			t.Errorf("entry %d: %v in %q", i+1, err, text)
			continue
		}
		if hash, _ := metadata.Sluice["config_hash"].(string); hash == "" {
			t.Errorf("entry %d: no config_hash in %q", i+1, text)
		}
		delete(metadata.Sluice, "config_hash")
		if diff := cmp.Diff(object{"domain": "logged", "decisions": list{w.decision}}, metadata.Sluice, wholeSeconds); diff != "" {
			t.Errorf("entry %d differs (-want +got):\n%s", i+1, diff)
		}
	}
}
