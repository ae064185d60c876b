package accesslog

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// operator is a command of a format string.
type operator struct {
	// name is the name of the field.
	name  string
	class valueClass
	// layout is the strftime format of START_TIME, or empty for Envoy's default.
	layout string
}

// operatorFields maps operators to fields with another name.
var operatorFields = map[string]string{
	"START_TIME": fieldTime, "RESPONSE_CODE": fieldStatus, "RESPONSE_FLAGS": fieldFlags, "RESPONSE_FLAGS_LONG": fieldFlags,
	"UPSTREAM_CLUSTER_RAW":                          "upstream_cluster",
	"DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT":        FieldRemote,
	"DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT": FieldDirect,
}

// operatorClasses are the operators whose values are more restricted than free text.
var operatorClasses = map[valueClass][]string{
	integer: {"BYTES_RECEIVED", "BYTES_SENT", "DURATION", "RESPONSE_CODE"},
	word: strings.Fields(`
DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_ADDRESS
DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT PROTOCOL REQUESTED_SERVER_NAME
RESPONSE_CODE_DETAILS RESPONSE_FLAGS RESPONSE_FLAGS_LONG UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW
UPSTREAM_HOST UPSTREAM_LOCAL_ADDRESS`),
}

// newOperator parses a command such as REQ(:PATH) or START_TIME(%s.%3f).
func newOperator(command string) (operator, error) {
	name, rest, hasArgument := strings.Cut(command, "(")
	argument := ""
	length := ""
	if hasArgument {
		i := strings.LastIndexByte(rest, ')')
		if i < 0 {
			return operator{}, fmt.Errorf("missing ) in %%%s%%", command)
		}
		argument = rest[:i]
		length = rest[i+1:]
	} else if i := strings.IndexByte(name, ':'); i >= 0 {
		name, length = name[:i], name[i:]
	}
	if name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
		return operator{}, fmt.Errorf("%%%s%% is not an operator of Envoy; operators are in capitals, such as %%REQ(X-USER)%%, and a percent sign is %%%%", command)
	}
	if err := checkOperator(name); err != nil {
		return operator{}, err
	}
	free := operator{name: strings.ToLower(name)}
	op := free
	if field, ok := operatorFields[name]; ok {
		op.name = field
	}
	for class, commands := range operatorClasses {
		if slices.Contains(commands, name) {
			op.class = class
		}
	}
	switch {
	case name == "START_TIME":
		op.layout = argument
	case name == "REQ" || name == "REQUEST_HEADER":
		op = requestHeader(strings.ToLower(argument))
	case name == "DYNAMIC_METADATA" && argument == RateLimitMetadata:
		op = operator{name: FieldMetadata, class: jsonObject}
	case hasArgument && op == free:
		op.name += "(" + strings.ToLower(argument) + ")"
	}
	if length != "" { // a truncated value is another field
		op.name += length
	}
	return op, nil
}

func requestHeader(argument string) operator {
	name, other, ok := strings.Cut(argument, "?")
	switch {
	case ok && name == "x-envoy-original-path" && other == ":path":
		// The router saves the path before it rewrites it; the rate limit filter saw this one.
		name = other
	case ok:
		name = argument
	}
	op := operator{name: name}
	if name == ":method" || name == ":scheme" {
		op.class = word
	}
	return op
}

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
		name, rules.DidYouMean(name, operatorNames))
}
