package rulefile

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v4"
)

// TestResolveScalar compares with the types of gopkg.in/yaml.v2.
func TestResolveScalar(t *testing.T) {
	for text, want := range map[string]scalar{
		"~": {kind: nullScalar}, "null": {kind: nullScalar}, "NULL": {kind: nullScalar}, "nULL": {},
		"y": {kind: boolScalar, bool: true}, "N": {kind: boolScalar}, "On": {kind: boolScalar, bool: true},
		"off": {kind: boolScalar}, "yES": {}, "true": {kind: boolScalar, bool: true},
		"0": {kind: intScalar}, "-0": {kind: intScalar}, "+5": {kind: intScalar, int: 5},
		"1_000": {kind: intScalar, int: 1000}, "1__0_": {kind: intScalar, int: 10}, "_1": {},
		"010": {kind: intScalar, int: 8}, "0o10": {kind: intScalar, int: 8}, "08": {kind: floatScalar, float: 8},
		"0xF": {kind: intScalar, int: 15}, "0b11": {kind: intScalar, int: 3}, "-0b11": {kind: intScalar, int: -3},
		"0x": {}, "0b2": {}, "+": {}, "5e": {}, "1-2": {}, "10.0.0.1": {}, "12:30:45": {},
		"9223372036854775807":  {kind: intScalar, int: math.MaxInt64},
		"9223372036854775808":  {kind: uintScalar, uint: 1 << 63},
		"18446744073709551616": {kind: floatScalar, float: 1 << 64},
		"1.5":                  {kind: floatScalar, float: 1.5}, "1.": {kind: floatScalar, float: 1}, ".5": {kind: floatScalar, float: 0.5},
		"1e3": {kind: floatScalar, float: 1000}, "1_0.5": {kind: floatScalar, float: 10.5}, "1e400": {},
		".inf": {kind: floatScalar, float: math.Inf(1)}, "-.INF": {kind: floatScalar, float: math.Inf(-1)},
		".nan": {kind: floatScalar, float: math.NaN()}, ".": {},
		"2026-01-31": {}, "2026-1-1 1:2:3": {}, "2026-99-99": {}, "2026-": {}, "": {kind: nullScalar},
		`"5"`: {}, "'yes'": {}, "! 5": {}, "!!str 5": {}, "!foo 5": {}, "!!timestamp 2026-01-31": {},
		`!!int "5"`: {kind: intScalar, int: 5}, "!!int x": {kind: badScalar}, "!!bool 1": {kind: badScalar},
		`!!bool "yes"`: {kind: boolScalar, bool: true}, "!!float 3": {kind: floatScalar, float: 3},
		`!!null ""`: {kind: nullScalar}, "!!null x": {kind: badScalar}, "!!binary '*'": {kind: badScalar}, "!!binary aGk=": {},
	} {
		var n yaml.Node
		if err := yaml.Unmarshal([]byte("k: "+text), &n); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := resolveScalar(n.Content[0].Content[1])
		got.text = ""
		if got.kind == floatScalar {
			got.int, got.uint = 0, 0
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(scalar{}), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("resolveScalar(%s) (-want +got):\n%s", text, diff)
		}
	}
}
