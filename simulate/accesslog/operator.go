package accesslog

import (
	"fmt"
	"strings"
)

// operator is a command of a format string.
type operator struct {
	// name is the field's.
	name string
	// class bounds what the value can be.
	class class
	// layout is the strftime format of START_TIME; empty for Envoy's own.
	layout string
}

// class is what the values of an operator are made of.
type class uint8

const (
	// Anything that a client may have sent.
	_ class = iota
	// tight has neither spaces nor quotes.
	tight
	// digits is a number, or - for none.
	digits
	// object is JSON.
	object
)

// operators are those whose values are known to be more than free text, and those that
// have another name than their own.
var operators = map[string]operator{
	"START_TIME":                             {name: fieldTime},
	"RESPONSE_CODE":                          {name: fieldStatus, class: digits},
	"RESPONSE_FLAGS":                         {name: fieldFlags, class: tight},
	"RESPONSE_FLAGS_LONG":                    {name: fieldFlags, class: tight},
	"DURATION":                               {name: "duration", class: digits},
	"BYTES_RECEIVED":                         {name: "bytes_received", class: digits},
	"BYTES_SENT":                             {name: "bytes_sent", class: digits},
	"PROTOCOL":                               {name: "protocol", class: tight},
	"ROUTE_NAME":                             {name: FieldRoute},
	"UPSTREAM_HOST":                          {name: "upstream_host", class: tight},
	"UPSTREAM_CLUSTER":                       {name: "upstream_cluster", class: tight},
	"UPSTREAM_CLUSTER_RAW":                   {name: "upstream_cluster", class: tight},
	"UPSTREAM_LOCAL_ADDRESS":                 {name: "upstream_local_address", class: tight},
	"DOWNSTREAM_LOCAL_ADDRESS":               {name: "downstream_local_address", class: tight},
	"DOWNSTREAM_REMOTE_ADDRESS":              {name: FieldRemote, class: tight},
	"DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT": {name: FieldRemote, class: tight},
	"DOWNSTREAM_DIRECT_REMOTE_ADDRESS":       {name: FieldDirect, class: tight},
	"DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT": {name: FieldDirect, class: tight},
	"RESPONSE_CODE_DETAILS":                         {name: "response_code_details", class: tight},
	"REQUESTED_SERVER_NAME":                         {name: "requested_server_name", class: tight},
}

// newOperator reads a command such as REQ(:PATH) or START_TIME(%s.%3f).
func newOperator(command string) (operator, error) {
	word, rest, hasArgument := strings.Cut(command, "(")
	argument, length := "", ""
	if hasArgument {
		i := strings.LastIndexByte(rest, ')')
		if i < 0 {
			return operator{}, fmt.Errorf("%%%s%% has no )", command)
		}
		argument, length = rest[:i], rest[i+1:]
	} else if i := strings.IndexByte(word, ':'); i >= 0 {
		word, length = word[:i], word[i:]
	}
	if word == "" || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
		return operator{}, fmt.Errorf("%%%s%% is no operator of Envoy: they are in capitals, such as %%REQ(X-USER)%%; a percent sign is %%%%", command)
	}
	if err := checkOperator(word); err != nil {
		return operator{}, err
	}
	op, known := operators[word]
	switch {
	case word == "START_TIME":
		op.layout = argument
	case word == "REQ" || word == "REQUEST_HEADER":
		op = requestHeader(strings.ToLower(argument))
	case word == "DYNAMIC_METADATA" && argument == RateLimitMetadata:
		op = operator{name: FieldMetadata, class: object}
	case known:
	case hasArgument:
		op = operator{name: strings.ToLower(word) + "(" + strings.ToLower(argument) + ")"}
	default:
		op = operator{name: strings.ToLower(word)}
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
		op.class = tight
	}
	return op
}
