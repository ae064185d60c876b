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

// operatorNames are Envoy's, those of the extensions that come with it among them.
var operatorNames = strings.Fields(operatorsText)

// Operators returns the operators that a format string may have, in the order of the alphabet.
func Operators() []string { return slices.Clone(operatorNames) }

// checkOperator returns an error for an operator that Envoy does not have. Else a slip in the
// name of what the simulation needs, such as the status, would leave that out in silence.
func checkOperator(name string) error {
	if _, known := slices.BinarySearch(operatorNames, name); known {
		return nil
	}
	return fmt.Errorf("%%%s%% is no operator of Envoy (write %%REQ(ANY)%% in place of one of your own extensions)%s",
		name, rules.DidYouMean(rules.Nearest(name, operatorNames)))
}
