package jsonview

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestValues compares the text of scanned values with encoding/json.
func TestValues(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`"a"`, "a"},
		{`""`, ""},
		{`"a\u0041\n\t\r\b\f\"\\\/"`, "aA\n\t\r\b\f\"\\/"},
		{`"\ud83d\ude00"`, "😀"},
		{`"\ud83d x"`, "\ufffd x"},
		{`-1.5E+3`, "-1.5E+3"},
		{`true`, "true"},
		{` [1,{"a":"]"}]`, `[1,{"a":"]"}]`},
		{`{}`, "{}"},
		{`[]`, "[]"},
		{`{"a":"\"}"}`, `{"a":"\"}"}`},
	} {
		s := Scanner{Bytes: []byte(test.text)}
		got, _, err := s.Value(nil)
		if string(got) != test.want || err != nil || s.Next() != 0 {
			t.Errorf("Value() of %s is %q, %v, want %q", test.text, got, err, test.want)
		}
		var text string
		if test.text[0] == '"' && (json.Unmarshal([]byte(test.text), &text) != nil || text != test.want) {
			t.Errorf("encoding/json reads %s as %q, want %q", test.text, text, test.want)
		}
	}
	s := Scanner{Bytes: []byte("null")}
	if got, _, err := s.Value(nil); got != nil || err != nil {
		t.Errorf("Value() of null is %q, %v, want nil", got, err)
	}
}

// TestKeys compares the keys of objects with those that encoding/json reads.
func TestKeys(t *testing.T) {
	for _, text := range []string{`{"a":1}`, `{"\u0061b":{"\"":2}}`, `{"\ud83d\ude00":1,"":2}`, `{"a\/b":[],"c":null}`} {
		want := map[string]any{}
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		s := Scanner{Bytes: []byte(text)}
		err := s.Object(func(key []byte) error {
			if _, ok := want[string(key)]; !ok {
				t.Errorf("%s: there is no key %q", text, key)
			}
			delete(want, string(key))
			return s.Skip()
		})
		if err != nil || len(want) > 0 {
			t.Errorf("%s: %v, and no keys %v", text, err, want)
		}
	}
	for _, text := range []string{`{"\q":1}`, `{"a`, `{"a\`, `{"\u00":1}`} {
		s := Scanner{Bytes: []byte(text)}
		if err := s.Object(func([]byte) error { return s.Skip() }); err == nil {
			t.Errorf("%s has no error", text)
		}
	}
}

// TestHex has bytes that nginx writes as \x22, which are no JSON unless they are asked for.
func TestHex(t *testing.T) {
	for text, want := range map[string]string{`"\x22\xc3\xBC\n"`: "\"ü\n", `"\x2"`: "", `"\x2g"`: "", `"\x"`: ""} {
		s := Scanner{Bytes: []byte(text), HexEscapes: true}
		if got, _, err := s.Value(nil); (err == nil) != (want != "") || err == nil && string(got) != want {
			t.Errorf("Value() of %s is %q, %v, want %q", text, got, err, want)
		}
		s = Scanner{Bytes: []byte(text)}
		if got, _, err := s.Value(nil); err == nil {
			t.Errorf("Value() of %s without Hex is %q, want an error", text, got)
		}
	}
}

// TestNoJSON has text that is none. Nesting is bounded, however it is taken.
func TestNoJSON(t *testing.T) {
	for _, text := range []string{
		"", `"`, `"a`, `"\"`, `"\x"`, `"\u12"`, "[", "[1", "[1,", "[1 2]", "[1}", "{", "{1}", `{"a"}`, `{"a":1 "b":2}`, `{"a":1]`, "?",
		strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65),
	} {
		s := Scanner{Bytes: []byte(text)}
		if got, _, err := s.Value(nil); err == nil {
			t.Errorf("Value() of %s is %q, want an error", text, got)
		}
	}
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for deepest, good := range map[int]bool{0: false, 99: false, 100: true} {
		if s := (Scanner{Bytes: []byte(deep), MaxDepth: deepest}); (s.Skip() == nil) != good {
			t.Errorf("Skip() of 100 lists with Deepest %d succeeds: %v, want %v", deepest, !good, good)
		}
	}
	for _, text := range []string{strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64)} {
		s := Scanner{Bytes: []byte(text)}
		if err := s.Skip(); err != nil || s.Next() != 0 {
			t.Errorf("Skip() of %s = %v, want nil", text, err)
		}
	}
}
