package accesslog

import (
	"fmt"
	"slices"
	"strings"
)

// operator is a command of a format string.
type operator struct {
	// name is the field's.
	name string
	// class bounds what the value can be.
	class valueClass
	// layout is the strftime format of START_TIME; empty for Envoy's own.
	layout string
}

// operatorFields are what the fields of operators are called if not as they are.
var operatorFields = map[string]string{
	"START_TIME": fieldTime, "RESPONSE_CODE": fieldStatus, "RESPONSE_FLAGS": fieldFlags, "RESPONSE_FLAGS_LONG": fieldFlags,
	"UPSTREAM_CLUSTER_RAW":                          "upstream_cluster",
	"DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT":        FieldRemote,
	"DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT": FieldDirect,
}

// operatorClasses are those of operators whose values are known to be more than free text.
var operatorClasses = map[valueClass][]string{
	integer: {"BYTES_RECEIVED", "BYTES_SENT", "DURATION", "RESPONSE_CODE"},
	word: strings.Fields(`
DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_ADDRESS
DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT PROTOCOL REQUESTED_SERVER_NAME
RESPONSE_CODE_DETAILS RESPONSE_FLAGS RESPONSE_FLAGS_LONG UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW
UPSTREAM_HOST UPSTREAM_LOCAL_ADDRESS`),
}

// newOperator reads a command such as REQ(:PATH) or START_TIME(%s.%3f).
func newOperator(command string) (operator, error) {
	name, rest, hasArgument := strings.Cut(command, "(")
	argument, length := "", ""
	if hasArgument {
		i := strings.LastIndexByte(rest, ')')
		if i < 0 {
			return operator{}, fmt.Errorf("%%%s%% has no )", command)
		}
		argument, length = rest[:i], rest[i+1:]
	} else if i := strings.IndexByte(name, ':'); i >= 0 {
		name, length = name[:i], name[i:]
	}
	if name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
		return operator{}, fmt.Errorf("%%%s%% is no operator of Envoy: they are in capitals, such as %%REQ(X-USER)%%; a percent sign is %%%%", command)
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
	if length != "" { // the value is cut
		op.name += length
	}
	return op, nil
}

func requestHeader(argument string) operator {
	name, other, ok := strings.Cut(argument, "?")
	switch {
	case ok && name == "x-envoy-original-path" && other == ":path":
		// What the router kept when it wrote another path: what the rate limit filter saw.
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
