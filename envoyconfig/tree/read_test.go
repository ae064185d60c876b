package tree

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestJSONEqualsYAML compares the JSON reader with the YAML library, which reads JSON, too: values and positions
// must be equal.
func TestJSONEqualsYAML(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, ` { "a" : [ 1 , -2.5e3, true,false , null, "x\ny\"\u00e9/" ] } `, "{\n\t\"a\": {\"b\": [],\r\n \"c\": \"ü\"}}", `[[[{"a":""}]]]`, `{"a":1,"a":2}`,
	} {
		got, err := parseJSON("f", []byte(text))
		if err != nil {
			t.Errorf("parseJSON(%q): %v", text, err)
			continue
		}
		want, err := parseYAML("f", []byte(text))
		if err != nil {
			t.Errorf("parseYAML(%q): %v", text, err)
			continue
		}
		equalNodes(t, text, &got, &want[0])
	}
	for _, text := range []string{``, `1`, `{`, `{"a"}`, `{"a":}`, `[1,]`, `{"a":1}x`, `{a: 1}`, `["\x"]`, "[\"\n\"]", `[01]`, `[tru]`, `["`, `[-]`} {
		if n, err := parseJSON("f", []byte(text)); err == nil {
			t.Errorf("parseJSON(%q) = %v, want an error", text, n)
		}
	}
}

func equalNodes(t *testing.T, text string, a, b *Node) {
	t.Helper()
	if a.Kind != b.Kind || a.Name != b.Name || a.Text != b.Text || a.line != b.line || a.col != b.col || len(a.Nodes) != len(b.Nodes) {
		t.Errorf("%q: JSON %v %q %q at %d:%d, YAML %v %q %q at %d:%d", text, a.Kind, a.Name, a.Text, a.line, a.col, b.Kind, b.Name, b.Text, b.line, b.col)
		return
	}
	for i := range a.Nodes {
		equalNodes(t, text, &a.Nodes[i], &b.Nodes[i])
	}
}

// FuzzJSON checks that a text is read if and only if encoding/json accepts it.
func FuzzJSON(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte) {
		trimmed := strings.TrimLeft(string(text), " \t\r\n")
		_, err := parseJSON("f", text)
		if isJSON := strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "["); isJSON && strings.Count(trimmed, "[")+strings.Count(trimmed, "{") < maxDepth {
			if valid := json.Valid(text); valid != (err == nil) {
				t.Errorf("parseJSON(%q) = %v, but json.Valid says %v", text, err, valid)
			}
		}
	})
}

// TestForms covers values that Envoy accepts in several forms.
func TestForms(t *testing.T) {
	field := func(text string) *Node {
		roots, err := Read("f", []byte("x: "+text), nil)
		if err != nil {
			t.Fatal(err)
		}
		return roots[0].Field("x")
	}
	for text, want := range map[string]bool{"yes": true, "'true'": true, "On": true, "{ value: true }": true, "OFF": false, "{ value: no }": false, "": true, "{}": true} {
		if got := field(text).Bool(true); got != want {
			t.Errorf("%s is read as %v", text, got)
		}
	}
	if got := strings.Join(Texts(field("[[a, b], [[c]], d]")), " "); got != "a b c d" {
		t.Errorf("lists in a list are read as %s", got)
	}
	for text, want := range map[string]uint64{"7": 7, "'7'": 7, "0x10": 16, "1e3": 1000, "{ value: 7 }": 7, "x": 5, "": 5, "[7]": 5} {
		if got := field(text).Uint(5); got != want {
			t.Errorf("%s is read as %d", text, got)
		}
	}
	for text, want := range map[string]time.Duration{
		"{ seconds: 2, nanos: 500000000 }": 2500 * time.Millisecond, "0.25s": 250 * time.Millisecond, "500ms": 500 * time.Millisecond, "soon": 0, "5": 0, "": 0,
	} {
		if got := field(text).Duration(); got != want {
			t.Errorf("%s is read as %v", text, got)
		}
	}
}
