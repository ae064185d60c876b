package accesslog

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

//go:embed operators.txt
var operatorsText string

// operatorNames are Envoy's operators, including those of its extensions, sorted.
var operatorNames = strings.Fields(operatorsText)

// Operators returns the operators that a format string may contain, sorted.
func Operators() []string { return slices.Clone(operatorNames) }

// checkOperator returns an error for an operator that Envoy lacks. Otherwise a typo in a required
// operator, such as the status, would silently remove it.
func checkOperator(name string) error {
	if _, known := slices.BinarySearch(operatorNames, name); known {
		return nil
	}
	return fmt.Errorf("%%%s%% is not an operator of Envoy; for one of your own extensions, write %%REQ(ANY)%%%s",
		name, rules.DidYouMean(rules.Nearest(name, operatorNames)))
}
