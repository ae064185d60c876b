package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestPrintJSON prints reports with and without fields, and one that is not an object.
func TestPrintJSON(t *testing.T) {
	for report, want := range map[string]string{
		`{}`:       "{\n  \"version\": 1\n}\n",
		`{"a": 2}`: "{\n  \"version\": 1,\n  \"a\": 2\n}\n",
		`[1]`:      "",
	} {
		var out bytes.Buffer
		err := outputFlag{Output: "json"}.print(console{out: &out}, json.RawMessage(report), nil)
		if out.String() != want || (err == nil) != (want != "") {
			t.Errorf("the report %s is printed as %q, error %v, want %q", report, out.String(), err, want)
		}
	}
}
