package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// labelsOfScrapes are labels that Prometheus adds, the last two only in Kubernetes.
var labelsOfScrapes = []string{"job", "instance", "namespace", "pod"}

// family describes the series of a metric.
type family struct {
	histogram bool
	// values are the values of each label.
	values map[string][]string
}

func (f *family) has(label string) bool {
	return f.values[label] != nil || slices.Contains(labelsOfScrapes, label)
}

// exposition is the metrics of the binary, by the names that queries use.
type exposition map[string]*family

// check returns the errors of a query: metrics, labels and values that the binary does not export.
func (e exposition) check(query string) []string {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(expandVariables(query))
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	complain := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			e.checkSelector(n, complain)
		case *parser.AggregateExpr:
			e.checkGrouping(n.Expr, n.Grouping, complain)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				e.checkGrouping(n, slices.Concat(n.VectorMatching.MatchingLabels, n.VectorMatching.Include), complain)
			}
		case *parser.Call:
			if n.Func.Name == "histogram_quantile" {
				e.checkGrouping(n.Args[1], []string{"le"}, complain)
			}
		}
		return nil
	})
	return found
}

func (e exposition) checkSelector(s *parser.VectorSelector, complain func(string, ...any)) {
	f := e[s.Name]
	if f == nil {
		complain("there is no metric %s", s.Name)
		return
	}
	for _, m := range s.LabelMatchers {
		switch {
		case m.Name == model.MetricNameLabel:
		case !f.has(m.Name):
			complain("%s has no label %s", s.Name, m.Name)
		case m.Type == labels.MatchEqual && f.values[m.Name] != nil && !slices.Contains(f.values[m.Name], m.Value):
			complain("%s has no %s=%q, only %q", s.Name, m.Name, m.Value, f.values[m.Name])
		}
	}
}

// checkGrouping checks that an expression has the labels that it is grouped by, from its series or
// label_replace.
func (e exposition) checkGrouping(expr parser.Expr, grouping []string, complain func(string, ...any)) {
	for _, label := range grouping {
		missing, made := "", false
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if c, ok := node.(*parser.Call); ok && c.Func.Name == "label_replace" {
				name, ok := c.Args[1].(*parser.StringLiteral)
				made = made || ok && name.Val == label
			}
			if s, ok := node.(*parser.VectorSelector); ok && e[s.Name] != nil && !e[s.Name].has(label) {
				missing = s.Name
			}
			return nil
		})
		if missing != "" && !made {
			complain("%s has no label %s to group by", missing, label)
		}
	}
}

var variable = regexp.MustCompile(`\$\{?\w+(:\w+)?\}?`)

// expandVariables replaces Grafana's variables by possible values.
func expandVariables(query string) string {
	return variable.ReplaceAllStringFunc(query, func(v string) string {
		if strings.HasPrefix(v, "$__") {
			return "5m"
		}
		return ".*"
	})
}

var labelValues = regexp.MustCompile(`^label_values\((.*), *(\w+)\)$`)

// checkVariable is like check for the query of a dashboard variable.
func (e exposition) checkVariable(query string) []string {
	m := labelValues.FindStringSubmatch(query)
	if m == nil {
		return []string{"not label_values(metric, label): " + query}
	}
	found := e.check(m[1])
	name, _, _ := strings.Cut(m[1], "{")
	if f := e[name]; f != nil && !f.has(m[2]) {
		found = append(found, fmt.Sprintf("%s has no label %s", name, m[2]))
	}
	return found
}

// TestCheckFindsTypos checks queries with typos, which the other tests must detect.
func TestCheckFindsTypos(t *testing.T) {
	t.Parallel()
	e := exposition{
		"calls_total":    {values: map[string][]string{"method": {"A", "B"}}},
		"time_bucket":    {histogram: true, values: map[string][]string{"method": {"A"}, "le": {"1", "+Inf"}}},
		"plain":          {values: map[string][]string{}},
		"plain_unlinked": {values: map[string][]string{"use": {"x"}}},
	}
	for _, tt := range []struct{ query, want string }{
		{`sum by (method, job) (rate(calls_total{method="A",instance=~"$instance"}[$__rate_interval]))`, ""},
		{`histogram_quantile(0.9, sum by (le) (rate(time_bucket[5m])))`, ""},
		{`calls_total / on (method) group_left (job) time_bucket > 0 or vector(0)`, ""},
		{`sum(rate(call_total[5m]))`, "no metric call_total"},
		{`plain{method="A"}`, "plain has no label method"},
		{`calls_total{method="C"}`, `no method="C"`},
		{`sum by (methods) (calls_total)`, "no label methods to group by"},
		{`sum by (kind) (label_replace(calls_total, "kind", "$1", "method", "(.*)"))`, ""},
		{`sum by (kinds) (label_replace(calls_total, "kind", "$1", "method", "(.*)"))`, "no label kinds to group by"},
		{`sum without (use) (calls_total)`, "no label use to group by"},
		{`calls_total / on (use) plain_unlinked`, "calls_total has no label use"},
		{`calls_total / ignoring (method) group_left (usage) plain_unlinked`, "no label usage"},
		{`histogram_quantile(0.9, rate(calls_total[5m]))`, "no label le"},
		{`sum(rate(calls_total[5m])`, "unclosed left parenthesis"},
	} {
		found := strings.Join(e.check(tt.query), "; ")
		if (found == "") != (tt.want == "") || !strings.Contains(found, tt.want) {
			t.Errorf("check(%s) = %q, want %q", tt.query, found, tt.want)
		}
	}
	for query, want := range map[string]string{
		`label_values(calls_total{job=~"$job"}, method)`: "",
		`label_values(calls_total, use)`:                 "no label use",
		`label_values(call_total, method)`:               "no metric",
		`calls_total`:                                    "not label_values",
	} {
		found := strings.Join(e.checkVariable(query), "; ")
		if (found == "") != (want == "") || !strings.Contains(found, want) {
			t.Errorf("checkVariable(%s) = %q, want %q", query, found, want)
		}
	}
}
