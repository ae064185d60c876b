package accesslog

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// variablePattern matches nginx's variables: $name, or ${name} with any characters.
var variablePattern = regexp.MustCompile(`\$(?:\{([^}]+)\}|([A-Za-z0-9_]+))`)

func (f *textFormat) parseVariables(format string) {
	at := 0
	for _, m := range variablePattern.FindAllStringSubmatchIndex(format, -1) {
		from := max(m[2], m[4])
		to := max(m[3], m[5])
		f.literals = append(f.literals, []byte(format[at:m[0]]))
		f.ops = append(f.ops, operator{name: format[from:to]})
		f.observeName(format[from:to])
		at = m[1]
	}
	f.literals = append(f.literals, []byte(format[at:]))
	f.delimited = true
	for i := range f.ops {
		op := &f.ops[i]
		next := f.literals[i+1]
		op.class = variableClass(op.name, f.literals[i], next)
		if op.class == anyText && i < len(f.ops)-1 {
			f.delimited = false
		}
	}
}

// Variables whose values are more restricted than free text, or less than one word.
var (
	numberVariables       = strings.Fields("body_bytes_sent bytes_sent request_length")
	addressVariables      = strings.Fields("remote_addr http_x_forwarded_for")
	untilLiteralVariables = strings.Fields("remote_user time_local pod")
	anyTextVariables      = strings.Fields("rest request request_uri uri document_uri args query_string line")
	anyTextPrefixes       = strings.Fields("http_ arg_ cookie_ sent_http_ upstream_http_")
)

// variableClass returns the class of a variable. Values that clients do not control are words.
func variableClass(name string, before, after []byte) valueClass {
	switch {
	case bytes.HasSuffix(before, []byte(`"`)) && bytes.HasPrefix(after, []byte(`"`)):
		return escaped
	case slices.Contains(numberVariables, name), slices.Contains(fieldAliases[fieldStatus], name):
		return integer
	case slices.Contains(addressVariables, name):
		return addressList
	case slices.Contains(untilLiteralVariables, name):
		return untilLiteral
	case slices.Contains(anyTextVariables, name),
		slices.ContainsFunc(anyTextPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }):
		return anyText
	default:
		return word
	}
}

// scanDelimited finds the values of a delimited format, which has one reading only. A quoted value
// ends at the first unescaped quote. Any other is written by the server and ends at the first
// occurrence of the next literal. It returns the column of the first mismatch, or -1.
func (f *textFormat) scanDelimited(line []byte, starts, ends []int) (bad int) {
	if !bytes.HasPrefix(line, f.literals[0]) {
		return 0
	}
	at := len(f.literals[0])
	for i := range f.ops {
		op := &f.ops[i]
		next := f.literals[i+1]
		var end int
		switch {
		case i == len(f.ops)-1:
			end = len(line) - len(next) - at
		case op.class == escaped:
			end = quoteEnd(line[at:])
		default:
			end = bytes.Index(line[at:], next)
		}
		if end < 0 || !op.fits(line[at:at+end]) || !bytes.HasPrefix(line[at+end:], next) {
			return at
		}
		starts[i] = at
		ends[i] = at + end
		at += end + len(next)
	}
	return -1
}

// quoteEnd returns the index of the first quote without a backslash before it, or -1.
func quoteEnd(b []byte) int {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return -1
		}
		slashes := 0
		for j := from + i - 1; j >= 0 && b[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return from + i
		}
		from += i + 1
	}
}
