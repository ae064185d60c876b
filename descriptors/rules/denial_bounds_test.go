package rules

import (
	"fmt"
	"strings"
	"testing"
)

// TestDeniedResponseBounds checks each bound at its limit and above. Placeholders count with their
// longest values.
func TestDeniedResponseBounds(t *testing.T) {
	body := func(contentType, text string) error {
		d := &DeniedResponse{}
		if contentType != "" {
			if err := d.SetContentType(contentType); err != nil {
				return err
			}
		}
		return d.SetBody(text)
	}
	header := func(name, value string) error { return (&DeniedResponse{}).AddHeader(name, value) }
	many := func(n int) (err error) {
		d := &DeniedResponse{}
		for i := range n {
			err = d.AddHeader(fmt.Sprint("x-", i), "v")
		}
		return err
	}
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"a long body":            {body("", strings.Repeat("a", 4096)), ""},
		"a longer body":          {body("", strings.Repeat("a", 4097)), "up to 4097 bytes"},
		"a name":                 {body("", strings.Repeat("a", 4096-256)+"{name}"), ""},
		"a name too many":        {body("", strings.Repeat("a", 4096-255)+"{name}"), "up to 4097 bytes"},
		"a number too many":      {body("", strings.Repeat("a", 4096-19)+"{reset}"), "up to 4097 bytes"},
		"an escaped name":        {body("application/json", `"`+strings.Repeat("a", 4096-513)+`{name}"`), "up to 4097 bytes"},
		"no JSON":                {body("application/problem+json; charset=utf-8", "{}{}"), "not valid JSON"},
		"a name outside quotes":  {body("application/json", `{"a":{name}}`), "put {name} and {domain} in quotes"},
		"numbers":                {body("application/json", `[{limit},{window},{retry_after},{reset}]`), ""},
		"other text in braces":   {body("text/css", "a{b:c} {} { name }"), ""},
		"an unknown placeholder": {body("", "{retry}"), "unknown placeholder {retry}"},
		"a wrong hyphen":         {body("", "in {retry-after} s"), "unknown placeholder {retry-after}; did you mean"},
		"a digit":                {body("", "{0}"), "unknown placeholder {0}"},
		"a NUL":                  {body("", "a\x00b"), "NUL"},
		"violated policies":      {body("", "{violated-policies}"), "unknown placeholder"}, // only presets have it
		"no media type":          {body("html", ""), "must be a media type"},
		"a line in the type":     {body("a/b;c=\"\r\nd: e\"", ""), "must be a media type"},
		"16 headers":             {many(16), ""},
		"17 headers":             {many(17), "at most"},
		"a long value":           {header("x-a", strings.Repeat("a", 1024)), ""},
		"a longer value":         {header("x-a", strings.Repeat("a", 1000)+"{limit}{reset}"), "up to 1040 bytes"},
		"a line in a value":      {header("x-a", "a\r\nb: c"), "control character"},
		"a C1 control":           {header("x-a", "a\u0085b"), "control character"},
		"a space at the end":     {header("x-a", "a "), "a space"},
		"an unknown value":       {header("x-a", "{user}"), "unknown placeholder {user}"},
	} {
		if tt.want == "at most" {
			tt.want = "the maximum is 16 headers"
		}
		if tt.want == "" && tt.err != nil || tt.want != "" && (tt.err == nil || !strings.Contains(tt.err.Error(), tt.want)) {
			t.Errorf("%s: error %v, want %q", name, tt.err, tt.want)
		}
	}
	for _, name := range []string{"", ":path", "a b", "a\r\nb", "ä", "Host", "content-length", "Content-Type", "transfer-encoding", "connection", "retry-after", "Date", "server", "grpc-status", "GRPC-x", "x-envoy-a"} {
		if header(name, "v") == nil {
			t.Errorf("the header %q is allowed", name)
		}
	}
}

// TestPresetsKeepBounds checks the presets with the longest values.
func TestPresetsKeepBounds(t *testing.T) {
	for _, d := range deniedPresets {
		if d.Body != nil && d.Body.maxBytes() > maxDenialBody {
			t.Errorf("%s has up to %d bytes", d.Preset, d.Body.maxBytes())
		}
	}
}
