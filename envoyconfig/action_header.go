package envoyconfig

import (
	"fmt"
	"strings"
)

// requestHeaders is the value of a header.
type requestHeaders struct {
	node        *node
	header, key string
	optional    bool
}

func newRequestHeaders(n *node) action {
	return &requestHeaders{
		node: n, header: strings.ToLower(n.field("header_name").str()), key: n.field("descriptor_key").str(),
		optional: n.field("skip_if_absent").yes(false),
	}
}

func (a *requestHeaders) entry(x *exchange) outcome {
	values, unknown := x.header(a.header)
	switch {
	case unknown != "":
		return outcome{unknown: "request_headers " + a.header + ": " + unknown}
	case len(values) > 0:
		if len(values) > 1 && !strings.HasPrefix(a.header, "x-") {
			// Envoy keeps some headers of its own as one, joined, and others apart.
			return outcome{unknown: "request_headers " + a.header + ": it is there twice"}
		}
		return outcome{key: a.key, value: values[0], has: true}
	case a.optional:
		return outcome{}
	default:
		return outcome{absent: fmt.Sprintf("no header %q", a.header)}
	}
}

func (a *requestHeaders) shape() shape {
	return shape{key: a.key, anyValue: true, optional: a.optional}
}

// queryParameters is the value of a query parameter.
type queryParameters struct {
	parameter, key string
	optional       bool
}

func newQueryParameters(n *node) action {
	return &queryParameters{
		parameter: n.field("query_parameter_name").str(), key: n.field("descriptor_key").str(),
		optional: n.field("skip_if_absent").yes(false),
	}
}

func (a *queryParameters) entry(x *exchange) outcome {
	query := x.decodedQuery()
	value, ok := query.first(a.parameter)
	switch {
	case query.unknown != "":
		return outcome{unknown: "query_parameters " + a.parameter + ": " + query.unknown}
	case ok:
		return outcome{key: a.key, value: value, has: true}
	case a.optional:
		return outcome{}
	default:
		return outcome{absent: fmt.Sprintf("no query parameter %q", a.parameter)}
	}
}

func (a *queryParameters) shape() shape {
	return shape{key: a.key, anyValue: true, optional: a.optional}
}
