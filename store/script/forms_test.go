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
		for script, branch := range map[string]string{algorithmsText: "\nfunction make." + letter + "()", syncText: "\nops." + letter + " = "} {
			if letter == "" || !strings.Contains(script, branch) {
				t.Errorf("a script has no branch %q for the letter %q of algorithm %d", branch, letter, algorithm)
			}
		}
	}
}
