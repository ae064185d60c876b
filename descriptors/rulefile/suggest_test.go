package rulefile

import (
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

func TestSuggest(t *testing.T) {
	for _, tt := range []struct {
		word       string
		candidates []string
		want       string
	}{
		{"requestsperunit", limitFields.names, "requests_per_unit"},
		{"requestsPerUnit", limitFields.names, "requests_per_unit"},
		{"RequestsPerUnit", limitFields.names, "requests_per_unit"},
		{"requests-per-unit", limitFields.names, "requests_per_unit"},
		{"request_per_unit", limitFields.names, "requests_per_unit"},
		{"unlimied", limitFields.names, "unlimited"},
		{"rateLimit", descriptorFields.names, "rate_limit"},
		{"rate_limts", descriptorFields.names, "rate_limits"},
		{"descriptor", descriptorFields.names, "descriptors"},
		{"vlaue", descriptorFields.names, "value"}, // swapped letters count as one edit
		{"Key", descriptorFields.names, "key"},
		{"shadow", descriptorFields.names, "shadow_mode"},
		{"days", rules.UnitNames(), "day"},
		{"sec", rules.UnitNames(), "second"},
		{"MINUTES", rules.UnitNames(), "minute"},
		{"fortnight", rules.UnitNames(), ""},
		{"tokens", limitFields.names, ""},
		{"subwindows", limitFields.names, "sub_windows"},
		{"maxWait", limitFields.names, "max_wait"},
		{"token", rules.AlgorithmNames(), "token_bucket"},
		{"leaky-bucket", rules.AlgorithmNames(), "leaky_bucket"},
		{"gcra", rules.AlgorithmNames(), ""},
		{"", limitFields.names, ""},
		{"x", rules.UnitNames(), ""},
	} {
		if got := rules.Suggest(tt.word, tt.candidates); got != tt.want {
			t.Errorf("suggest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}
