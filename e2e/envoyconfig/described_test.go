//go:build more

package envoyconfig_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"strings"
)

// describe returns the request that a variant limits, if it limits any: it satisfies its routes and matchers, and has the
// headers and parameters that its actions, its hits and its filters read.
func (v *variant) describe() request {
	d := description{request: request{method: "GET", headers: maps.Clone(v.requests[0].headers)}, prefix: "/", query: map[string]string{}, value: "alice"}
	if strings.Contains(string(v.bootstrap), `"BASE64"`) {
		d.value = base64.StdEncoding.EncodeToString([]byte(d.value))
	}
	d.read(decode(v.bootstrap))
	for _, found := range readsHeader.FindAllStringSubmatch(string(v.bootstrap), -1) {
		d.setHeader(found[1]+found[2], d.value)
	}
	for _, found := range hitsOfHeader.FindAllStringSubmatch(string(v.bootstrap), -1) {
		d.setHeader(found[1], "1")
	}
	for _, found := range valueOfHeader.FindAllStringSubmatch(string(v.bootstrap), -1) {
		d.setHeader(found[1], "a")
	}
	for _, found := range claimOfToken.FindAllStringSubmatch(string(v.bootstrap), -1) {
		d.request.headers["authorization"] = "Bearer " + jwtOfAlice(found[1])
	}
	d.request.path = d.prefix
	separator := "?"
	for name, value := range d.query {
		d.request.path += separator + url.PathEscape(name) + "=" + url.PathEscape(value)
		separator = "&"
	}
	return d.request
}

var (
	// readsHeader matches formats and Lua code that read a header.
	readsHeader  = regexp.MustCompile(`%REQ\(([^)]*)\)%|:get\('(x[^']*)'\)`)
	hitsOfHeader = regexp.MustCompile(`"format":"%REQ\(([^)]*)\)%"`)
	// valueOfHeader matches the value of an entry that the rule of a working configuration has.
	valueOfHeader = regexp.MustCompile(`"descriptor_value":"%REQ\(([^)]*)\)%"`)
	claimOfToken  = regexp.MustCompile(`"path":\[\{"key":"payload"\},\{"key":"([^"]*)"\}\]`)
	headerName    = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// description collects the parts of a request.
type description struct {
	request request
	prefix  string
	query   map[string]string
	// value is the value of headers and parameters that have none.
	value string
}

func (d *description) setHeader(name, value string) {
	if headerName.MatchString(name) {
		d.request.headers[strings.ToLower(name)] = value
	}
}

// read reads the fields of a part of the bootstrap.
func (d *description) read(part any) {
	switch part := part.(type) {
	case list:
		for _, e := range part {
			d.read(e)
		}
	case object:
		if route, ok := part["match"].(object); ok && part["route"] != nil {
			if prefix, ok := route["prefix"].(string); ok && strings.HasPrefix(prefix, "/") {
				d.prefix = url.PathEscape(prefix[1:])
				d.prefix = "/" + d.prefix
			}
		}
		d.readAction(part)
		for _, e := range part {
			d.read(e)
		}
	}
}

func (d *description) readAction(part object) {
	if name, ok := part["header_name"].(string); ok {
		d.setHeader(name, d.value)
	}
	if name, ok := part["header"].(string); ok {
		d.setHeader(name, d.value)
	}
	if name, ok := part["query_parameter_name"].(string); ok {
		d.query[name] = d.value
	}
	if matcher, ok := part["address_matcher"].(object); ok {
		d.request.headers["x-forwarded-for"] = addressFor(matcher)
	}
	for _, kind := range []string{"headers", "query_parameters"} {
		matchers, isList := part[kind].(list)
		if one, ok := part[kind].(object); ok {
			matchers, isList = list{one}, true
		}
		if !isList || part["descriptor_value"] == nil {
			continue
		}
		for _, m := range matchers {
			matcher, _ := m.(object)
			d.match(kind, matcher, part["expect_match"] == false)
		}
	}
}

// match satisfies a matcher, or does not if inverted is true.
func (d *description) match(kind string, matcher object, inverted bool) {
	name, _ := matcher["name"].(string)
	value, present := satisfy(matcher, d.value)
	if (matcher["invert_match"] == true) != inverted {
		value, present = "other", !present
	}
	switch {
	case kind == "query_parameters" && present:
		d.query[name] = value
	case present:
		d.setHeader(name, value)
	case kind == "headers":
		delete(d.request.headers, name)
	}
}

// satisfy returns a value that a matcher accepts. present is false if it accepts no value.
func satisfy(matcher object, byDefault string) (value string, present bool) {
	if text, ok := matcher["string_match"].(object); ok {
		return satisfy(text, byDefault)
	}
	if r, ok := matcher["range_match"].(object); ok {
		return fmt.Sprint(r["start"]), true
	}
	if matcher["present_match"] == false {
		return "", false
	}
	for _, field := range []string{"exact", "prefix", "suffix", "contains"} {
		for _, name := range []string{field, field + "_match"} {
			if text, ok := matcher[name].(string); ok {
				return text, true
			}
		}
	}
	for _, name := range []string{"safe_regex", "safe_regex_match"} {
		if r, ok := matcher[name].(object); ok && r["regex"] == "a" {
			return "a", true
		}
	}
	return byDefault, true
}

// addressFor returns an address that an AddressMatcher accepts.
func addressFor(matcher object) string {
	ranges, _ := matcher["ranges"].(list)
	if one, ok := matcher["ranges"].(object); ok {
		ranges = list{one}
	}
	for _, r := range ranges {
		inverted := matcher["invert_match"] == true || matcher["invert_match"] == "yes"
		if o, _ := r.(object); !inverted && o["address_prefix"] != nil {
			return fmt.Sprint(o["address_prefix"])
		}
	}
	return "192.0.2.7"
}
