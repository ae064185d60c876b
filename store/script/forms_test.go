package script

import (
	"strings"
	"testing"
)

// Both scripts have a branch for the letter of each algorithm.
func TestScriptsHaveEachAlgorithm(t *testing.T) {
	for algorithm, form := range forms {
		letter := form.letter
		if algorithm == 0 {
			continue
		}
		for name, script := range map[string]string{"decide.lua": decide, "repay.lua": repay} {
			if letter == "" || !strings.Contains(script, "\nops."+letter+" = ") {
				t.Errorf("%s has no branch for the letter %q of algorithm %d", name, letter, algorithm)
			}
		}
	}
}
