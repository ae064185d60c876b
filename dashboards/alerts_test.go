package dashboards

import (
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

var alertName = regexp.MustCompile(`^Sluice[A-Z][A-Za-z]+$`)

// TestAlerts checks the rules like `promtool check rules`. It also checks that their metrics exist,
// that conditions are in docs/state.md, and that each rule has a severity, a summary, a description
// and a runbook.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.Default())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.Fatal("no groups")
	}
	page, err := os.ReadFile("../docs/state.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics := binaryMetrics(t)
	seen := map[string]bool{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if !alertName.MatchString(r.Alert) || seen[r.Alert] {
				t.Errorf("%q: must be a unique name like SluiceSomething", r.Alert)
			}
			seen[r.Alert] = true
			for _, found := range metrics.check(r.Expr) {
				t.Errorf("%s: %s", r.Alert, found)
			}
			switch r.Labels["severity"] {
			case "info", "warning", "critical":
			default:
				t.Errorf("%s: severity is %q, want info, warning or critical", r.Alert, r.Labels["severity"])
			}
			for code := range strings.SplitSeq(r.Labels["condition"], ",") {
				if code != "" && !strings.Contains(string(page), "\n| [`"+code+"`](") {
					t.Errorf("%s: docs/state.md has no condition %q", r.Alert, code)
				}
			}
			for _, name := range []string{"summary", "description", "runbook"} {
				if r.Annotations[name] == "" {
					t.Errorf("%s has no %s", r.Alert, name)
				}
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("found %d alerts, want at least 10", len(seen))
	}
}
