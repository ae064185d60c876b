package environment

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind is the Go type of a setting of envoyproxy/ratelimit.
type kind string

const (
	aString   kind = "string"
	aBool     kind = "bool"
	anInt     kind = "int"
	anInt64   kind = "int64"
	aFloat32  kind = "float32"
	aFloat64  kind = "float64"
	aDuration kind = "time.Duration"
	aList     kind = "[]string"
	aMap      kind = "map[string]string"
)

// check returns "" if text is valid, and otherwise a description of valid values. It accepts the
// same values as envconfig, the library that reads the settings of envoyproxy/ratelimit.
func (k kind) check(text string) (allowed string) {
	var err error
	switch k {
	case aBool:
		_, err = strconv.ParseBool(text)
	case anInt, anInt64:
		_, err = strconv.ParseInt(text, 0, 64)
	case aFloat32:
		_, err = strconv.ParseFloat(text, 32)
	case aFloat64:
		_, err = strconv.ParseFloat(text, 64)
	case aDuration:
		_, err = time.ParseDuration(text)
	case aMap:
		_, err = parsePairs(text)
	case aString, aList: // any text is valid
	}
	if err == nil {
		return ""
	}
	return map[kind]string{
		aBool: "must be true or false", anInt: "must be a whole number", anInt64: "must be a whole number",
		aFloat32: "must be a number", aFloat64: "must be a number",
		aDuration: "must be a time such as 500ms, 30s, 10m or 24h", aMap: "must be name:value,name:value",
	}[k]
}

// parsePairs splits k1:v1,k2:v2. Keys and values may be empty but cannot contain a colon. It keeps
// the order; the last of equal keys wins.
func parsePairs(text string) (all [][2]string, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(item, ":")
		if !found || strings.Contains(value, ":") {
			return nil, errors.New("not a pair of name and value")
		}
		all = slices.DeleteFunc(all, func(p [2]string) bool { return p[0] == key })
		all = append(all, [2]string{key, value})
	}
	return all, nil
}

// check returns an error if text is not a valid value of v.
func (v *Variable) check(text string) error {
	allowed := v.kind.check(text)
	switch {
	case allowed != "":
	case choices[v.Name] != nil && !slices.Contains(choices[v.Name], text):
		allowed = "must be " + strings.Join(choices[v.Name], " or ")
		if text == decayBackend {
			allowed = reasonDecay
		}
	case v.has(port) && !isPort(text): // the error follows
	default:
		return nil
	}
	if v.has(port) {
		allowed = "must be a port, 0 to 65535"
		if strings.HasPrefix(text, "tcp://") {
			allowed += "; Kubernetes sets it for a Service of that name; to prevent this, set enableServiceLinks: false in the pod"
		}
	}
	return fmt.Errorf("%s=%s: %s", v.Name, v.display(text), allowed)
}

func isPort(text string) bool {
	n, err := strconv.ParseInt(text, 0, 64)
	return err == nil && n >= 0 && n <= 65535
}

// display returns text for logs and errors, without secrets.
func (v *Variable) display(text string) string {
	if v.Secret() {
		return "(not shown)"
	}
	return strconv.Quote(text)
}
