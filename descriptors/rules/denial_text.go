package rules

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DeniedText is text with placeholders for values of a denial. It is immutable.
type DeniedText struct {
	text  string
	parts []textPart
	json  bool // whether values need JSON's escapes
}

// textPart is a literal followed by a placeholder; the last part may have none.
type textPart struct{ literal, placeholder string }

// DenialValues are the values of placeholders.
type DenialValues struct {
	// Name and Domain are UTF-8. The template uses up to 256 bytes of each.
	Name, Domain []byte
	// Limit is the number of the limit. Window, RetryAfter and Reset are seconds; Window is 0 for a
	// concurrency limit.
	Limit, Window, RetryAfter, Reset uint64
	// Denying has the limits that denied the request. Optional.
	Denying DenyingLimits
}

// DenyingLimits are the limits that denied a request.
type DenyingLimits interface {
	// NextDenying returns the name of the first of them from a position on, and the position of the
	// next one. ok is false if there is none. The name is valid until the next call.
	NextDenying(from int) (name []byte, next int, ok bool)
}

// maxDenialText bounds the bytes of a name in a response.
const maxDenialText = 256

// maxDigits is the largest number of digits of a placeholder's value.
const maxDigits = 20

// violatedPolicies is the placeholder for the names of all limits that denied, as a list in JSON.
// Only presets have it.
const violatedPolicies = "violated-policies"

// maxViolated bounds the bytes of that list. Limits that do not fit are left out.
const maxViolated = 2048

// placeholderPattern also matches misspelt placeholders, such as {retry-after}.
var placeholderPattern = regexp.MustCompile(`\{[A-Za-z0-9_-]+\}`)

// placeholders are the names of the placeholders that rules may use.
var placeholders = []string{"name", "limit", "window", "retry_after", "reset", "domain"}

// newTemplate parses text. The error names an unknown placeholder.
func newTemplate(text string, isJSON bool) (*DeniedText, error) {
	for _, found := range placeholderPattern.FindAllString(text, -1) {
		name := found[1 : len(found)-1]
		if !slices.Contains(placeholders, name) {
			return nil, fmt.Errorf("unknown placeholder %s%s (allowed: {%s})", Shorten(found),
				DidYouMean(name, placeholders), strings.Join(placeholders, "}, {"))
		}
	}
	return preset(text, isJSON), nil
}

// preset parses the text of a preset, whose placeholders are known.
func preset(text string, isJSON bool) *DeniedText {
	t := &DeniedText{text: text, json: isJSON}
	from := 0
	for _, at := range placeholderPattern.FindAllStringIndex(text, -1) {
		t.parts = append(t.parts, textPart{text[from:at[0]], text[at[0]+1 : at[1]-1]})
		from = at[1]
	}
	t.parts = append(t.parts, textPart{text[from:], ""})
	return t
}

// maxBytes returns the length of the text with the longest values.
func (t *DeniedText) maxBytes() (n int) {
	for _, part := range t.parts {
		n += len(part.literal)
		switch part.placeholder {
		case "":
		case "name", "domain":
			if n += maxDenialText; t.json {
				n += maxDenialText // each byte may need an escape
			}
		case violatedPolicies:
			n += maxViolated
		default:
			n += maxDigits
		}
	}
	return n
}

// describesLimit reports whether a placeholder describes the limit. A nil text has none.
func (t *DeniedText) describesLimit() bool {
	return t != nil && slices.ContainsFunc(t.parts, func(part textPart) bool {
		return part.placeholder != "" && part.placeholder != "domain" && part.placeholder != "retry_after"
	})
}

// Append appends the text with values. It allocates only to grow dst.
func (t *DeniedText) Append(dst []byte, v *DenialValues) []byte {
	for i := range t.parts {
		part := &t.parts[i]
		dst = append(dst, part.literal...)
		switch part.placeholder {
		case "name":
			dst = t.appendText(dst, v.Name)
		case "domain":
			dst = t.appendText(dst, v.Domain)
		case "limit":
			dst = strconv.AppendUint(dst, v.Limit, 10)
		case "window":
			dst = strconv.AppendUint(dst, v.Window, 10)
		case "retry_after":
			dst = strconv.AppendUint(dst, v.RetryAfter, 10)
		case "reset":
			dst = strconv.AppendUint(dst, v.Reset, 10)
		case violatedPolicies:
			dst = t.appendViolated(dst, v)
		}
	}
	return dst
}

// appendText appends the first bytes of text, with control characters replaced and, in JSON, with
// escapes.
func (t *DeniedText) appendText(dst, text []byte) []byte {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if i += size; i > maxDenialText {
			break
		}
		switch {
		case IsControl(r) || r == utf8.RuneError && size == 1:
			dst = append(dst, '?')
			continue
		case t.json && (r == '"' || r == '\\'):
			dst = append(dst, '\\')
		}
		dst = append(dst, text[i-size:i]...)
	}
	return dst
}

// hasString reports whether s is one of a list of JSON strings, each with its quotes.
func hasString(list, s []byte) bool {
	for len(list) > 0 {
		end := 1
		for ; list[end] != '"'; end++ {
			if list[end] == '\\' {
				end++
			}
		}
		if bytes.Equal(list[:end+1], s) {
			return true
		}
		list = list[min(end+2, len(list)):] // a comma follows
	}
	return false
}

// appendViolated appends the list of violated policies, each once.
func (t *DeniedText) appendViolated(dst []byte, v *DenialValues) []byte {
	dst = append(dst, '[')
	start := len(dst)
	if v.Denying != nil {
		for name, next, ok := v.Denying.NextDenying(0); ok; name, next, ok = v.Denying.NextDenying(next) {
			before := len(dst)
			if before > start {
				dst = append(dst, ',')
			}
			first := len(dst)
			dst = append(t.appendText(append(dst, '"'), name), '"')
			if full := len(dst)-start > maxViolated-2; full || hasString(dst[start:before], dst[first:]) {
				dst = dst[:before]
				if full {
					break
				}
			}
		}
	}
	return append(dst, ']')
}

// IsControl reports whether r is a control character, or one that separates lines.
func IsControl(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }
