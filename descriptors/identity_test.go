package descriptors

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// TestPrecomputedIdentity checks that the parts of an identity that are hashed when a rule is
// compiled have the same effect as those hashed for a request. So a rule that is edited keeps its
// counters.
func TestPrecomputedIdentity(t *testing.T) {
	var deep strings.Builder // deeper than the precomputed keys of the hash
	const levels = 40
	deepEntries := make([]string, 0, 2*levels)
	indent := ""
	deep.WriteString("domain: d\ndescriptors:\n")
	for i := range levels {
		fmt.Fprintf(&deep, "%s- key: k%d\n", indent, i)
		if i%2 == 0 {
			fmt.Fprintf(&deep, "%s  value: v%d\n", indent, i)
		}
		if i == levels-1 {
			fmt.Fprintf(&deep, "%s  rate_limit: {unit: hour, requests_per_unit: 1}\n", indent)
		} else {
			fmt.Fprintf(&deep, "%s  descriptors:\n", indent)
		}
		indent += "  "
		deepEntries = append(deepEntries, fmt.Sprintf("k%d", i), fmt.Sprintf("v%d", i))
	}
	const limit = "rate_limit: {unit: hour, requests_per_unit: 1}"
	long := strings.Repeat("long ", 100)
	for _, tc := range []struct {
		name, rules string
		entries     []string
		values      []string // values in the identity, or nil if they are those of the request
	}{
		{"key only", "descriptors: [{key: a, " + limit + "}]", []string{"a", "x"}, nil},
		{"literal value", "descriptors: [{key: a, value: x, " + limit + "}]", []string{"a", "x"}, nil},
		{"long literal value", "descriptors: [{key: a, value: '" + long + "', " + limit + "}]", []string{"a", long}, nil},
		{"long value", "descriptors: [{key: a, " + limit + "}]", []string{"a", long}, nil},
		{"wildcard value", "descriptors: [{key: a, value: x*, " + limit + "}]", []string{"a", "xyz"}, nil},
		{"wildcard value as it is written", "descriptors: [{key: a, value: x*, " + limit + "}]", []string{"a", "x*"}, nil},
		{"wildcard key", "descriptors: [{key: a*, " + limit + "}]", []string{"abc", "x"}, nil},
		{"wildcard key, literal value", "descriptors: [{key: a*, value: x, " + limit + "}]", []string{"abc", "x"}, nil},
		{"shared value", "descriptors: [{key: a, value: x*, share_threshold: true, " + limit + "}]", []string{"a", "xyz"}, []string{"x*"}},
		{"shared key with a star", "descriptors: [{key: a*, share_threshold: true, " + limit + "}]", []string{"abc", "x"}, []string{"*"}},
		{
			"literal below open",
			"descriptors: [{key: a, descriptors: [{key: b, value: y, descriptors: [{key: c, " + limit + "}]}]}]",
			[]string{"a", "x", "b", "y", "c", ""},
			nil,
		},
		{"deep", deep.String(), deepEntries, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := tc.rules
			if !strings.HasPrefix(file, "domain") {
				file = "domain: d\n" + file
			}
			key := identity.Key{7}
			s := load(t, Options{HashKey: key}, file)
			h := key.Hasher()
			h.AddBytes([]byte("d"))
			h.AddWord(uint64(limiter.FixedWindow)<<32 | 3600)
			for i := 0; i < len(tc.entries); i += 2 {
				value := tc.entries[i+1]
				if tc.values != nil {
					value = tc.values[i/2]
				}
				h.AddBytes([]byte(tc.entries[i]))
				h.AddBytes([]byte(value))
			}
			if got, want := id(t, s, "d", desc(tc.entries...)), h.Sum(); got != want {
				t.Errorf("ID = %x, want %x, the hash of all parts", got, want)
			}
			if tc.values != nil {
				return
			}
			// The identity of an override has the values of the request.
			if got, want := id(t, s, "d", desc(tc.entries...).limit(5, 3, 0)), h.Sum(); got != want {
				t.Errorf("ID of an override = %x, want %x", got, want)
			}
		})
	}
}
