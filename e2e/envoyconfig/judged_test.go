//go:build more

package envoyconfig_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// outcome is what a real Envoy does with a variant.
type outcomeOfVariant string

const (
	rejected     outcomeOfVariant = "rejected by Envoy"
	servesNobody outcomeOfVariant = "serves no request"
	neverLimits  outcomeOfVariant = "never limits"
	// limitsOthers are variants that deny requests, but not the described one, or not from the 61st.
	limitsOthers outcomeOfVariant = "limits other requests"
	works        outcomeOfVariant = "works"
)

// advice are the codes of findings that do not claim that a limit has no effect.
var advice = []envoyconfig.Code{
	envoyconfig.Timeout, envoyconfig.SameAddress, envoyconfig.QueryInKey, envoyconfig.Version, envoyconfig.ClientHits, envoyconfig.HitsDropped,
}

// isAdvice reports whether a finding leaves open whether a limit works.
func isAdvice(f envoyconfig.Finding) bool {
	// The last two leave open only what happens to another limit, or to other requests.
	return f.Severity == rules.Note || slices.Contains(advice, f.Code) || f.Code == envoyconfig.Cluster && f.Severity == rules.Warning ||
		strings.HasPrefix(f.Message, "the limit is never sent: ") || strings.HasPrefix(f.Message, "requests without ")
}

// outcome returns the outcome of a variant, whose last kind of requests is the described one.
func (v verdict) outcome() outcomeOfVariant {
	if v.rejected != "" {
		return rejected
	}
	denied, passed := 0, 0
	for _, kind := range v.kinds {
		denied += kind.denied
		passed += kind.passed
	}
	switch {
	case denied == 0 && passed == 0:
		return servesNobody
	case denied == 0:
		return neverLimits
	case v.kinds[len(v.kinds)-1].firstDenied == 61:
		return works
	default:
		return limitsOthers
	}
}

// states reports whether a statement has a rule that denies requests: Envoy asks at the start, and something charges it.
// all is true if this holds for each of its rows.
func states(s *envoyconfig.Statement) (limits, all bool) {
	asked, charged := map[*descriptors.Rule]bool{}, map[*descriptors.Rule]bool{}
	for _, row := range s.Rows {
		for _, r := range row.Rules {
			asked[r] = asked[r] || row.Limits()
			charged[r] = charged[r] || row.Charged > 0
		}
	}
	all = true
	for _, row := range s.Rows {
		ok := slices.ContainsFunc(row.Rules, func(r *descriptors.Rule) bool { return asked[r] && charged[r] })
		limits, all = limits || ok, all && ok
	}
	return limits, all
}

// isRare reports whether a statement says that only a part of the requests is limited, too few of 100.
func isRare(s *envoyconfig.Statement) bool {
	return slices.ContainsFunc(s.Rows, func(row *envoyconfig.Row) bool {
		return slices.ContainsFunc(row.Conditions, func(c string) bool { return strings.Contains(c, " % of filter_") })
	})
}

// TestVariants compares the findings and the statement of each variant with a real Envoy. No variant that never limits
// may pass, and none that works may have an error or a warning.
func TestVariants(t *testing.T) {
	suite.SkipAtYearEnd(t)
	j := newJudge(t)
	all := variants(t)
	var sampled []variant
	sum := fnv.New32()
	for _, v := range all {
		sum.Reset()
		fmt.Fprint(sum, v.name)
		if effort.Level(t) >= effort.All || sum.Sum32()%20 == 0 {
			sampled = append(sampled, v)
		}
	}
	var mu sync.Mutex
	table := map[string]int{}
	t.Run("all", func(t *testing.T) {
		for _, v := range sampled {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				v.requests = append(slices.Clone(v.requests), v.describe())
				found := j.run(t, v)
				row, wrong := v.compare(t, found.outcome())
				if wrong != "" {
					t.Errorf("%s: %s\n%+v", v.requests[len(v.requests)-1], wrong, found)
				}
				t.Log(row)
				mu.Lock()
				defer mu.Unlock()
				table[row]++
			})
		}
	})
	for _, row := range slices.Sorted(maps.Keys(table)) {
		t.Logf("%5d %s", table[row], row)
	}
	t.Logf("%5d of %d variants", len(sampled), len(all))
}

// compare returns the row of the table that a variant belongs to, and the reason why it is wrong.
func (v *variant) compare(t *testing.T, o outcomeOfVariant) (row, wrong string) {
	t.Helper()
	findings, statement, err := v.verify(t)
	if err != nil {
		if o != rejected {
			wrong = fmt.Sprintf("Envoy accepts it, and Read returns %v", err)
		}
		return string(o) + ", error", wrong
	}
	reported := slices.ContainsFunc(findings, func(f envoyconfig.Finding) bool { return !isAdvice(f) || o == neverLimits && f.Severity != rules.Note })
	about := fmt.Sprintf(":\nfindings %v\nstatement %v", findings, statement.Rows)
	stated, all := states(statement)
	row = string(o) + map[bool]string{true: ", reported", false: ", passed"}[reported]
	switch {
	case o == rejected || o == servesNobody:
	case o == neverLimits && !reported && isRare(statement):
		row += ", as a percentage"
	case o == neverLimits && !reported:
		wrong = "it never limits, and check reports nothing" + about
	case o == works && reported && all:
		wrong = "it works, and check reports" + about
	case o != neverLimits && !stated:
		wrong = "it limits, and the statement has no limit" + about
	case o == neverLimits && stated:
		row += ", but the statement has a limit"
		t.Log("never limits, but the statement has a limit", about)
	}
	return row, wrong
}
