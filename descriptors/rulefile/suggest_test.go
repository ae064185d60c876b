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
		{"requestsperunit", limitWords.words, "requests_per_unit"},
		{"requestsPerUnit", limitWords.words, "requests_per_unit"},
		{"RequestsPerUnit", limitWords.words, "requests_per_unit"},
		{"requests-per-unit", limitWords.words, "requests_per_unit"},
		{"request_per_unit", limitWords.words, "requests_per_unit"},
		{"unlimied", limitWords.words, "unlimited"},
		{"rateLimit", descriptorWords.words, "rate_limit"},
		{"rate_limts", descriptorWords.words, "rate_limits"},
		{"descriptor", descriptorWords.words, "descriptors"},
		{"vlaue", descriptorWords.words, "value"}, // two letters swapped are one slip
		{"Key", descriptorWords.words, "key"},
		{"shadow", descriptorWords.words, "shadow_mode"},
		{"days", rules.UnitNames(), "day"},
		{"sec", rules.UnitNames(), "second"},
		{"MINUTES", rules.UnitNames(), "minute"},
		{"fortnight", rules.UnitNames(), ""},
		{"tokens", limitWords.words, ""},
		{"subwindows", limitWords.words, "sub_windows"},
		{"maxWait", limitWords.words, "max_wait"},
		{"token", rules.AlgorithmNames(), "token_bucket"},
		{"leaky-bucket", rules.AlgorithmNames(), "leaky_bucket"},
		{"gcra", rules.AlgorithmNames(), ""},
		{"", limitWords.words, ""},
		{"x", rules.UnitNames(), ""},
	} {
		if got := rules.Suggest(tt.word, tt.candidates); got != tt.want {
			t.Errorf("suggest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}
