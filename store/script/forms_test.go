package script

import (
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// Both scripts have a branch for the letter of each algorithm, and the differential test has counters of each.
func TestScriptsHaveEachAlgorithm(t *testing.T) {
	compared := map[limiter.Algorithm]bool{}
	for _, same := range counters {
		compared[same[0].Algorithm] = true
	}
	for algorithm, form := range forms {
		letter := form.letter
		if algorithm == 0 {
			continue
		}
		if !compared[limiter.Algorithm(algorithm)] {
			t.Errorf("the differential test has no counter of algorithm %d", algorithm)
		}
		for name, script := range map[string]string{"decide.lua": decide, "repay.lua": repay} {
			if letter == "" || !strings.Contains(script, "\nops."+letter+" = ") {
				t.Errorf("%s has no branch for the letter %q of algorithm %d", name, letter, algorithm)
			}
		}
	}
}
