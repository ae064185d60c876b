package dashboards

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeListsTheAlerts compares the table of README.md with alerts.yaml.
func TestReadmeListsTheAlerts(t *testing.T) {
	t.Parallel()
	alerts, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`(?s)- alert: (\w+).*?severity: (\w+)`)
	for _, m := range rule.FindAllStringSubmatch(string(alerts), -1) {
		row := regexp.MustCompile(`(?m)^\|.*\b` + m[1] + `\b.*\| (\w+) \|$`).FindStringSubmatch(string(readme))
		if row == nil || row[1] != m[2] {
			t.Errorf("README.md has the row %[2]v for %[1]s, want one of severity %[3]s", m[1], row, m[2])
		}
	}
	named := regexp.MustCompile(`Sluice[A-Z]\w+`)
	for _, name := range named.FindAllString(string(readme), -1) {
		if !strings.Contains(string(alerts), "- alert: "+name+"\n") {
			t.Errorf("README.md names %s, which is not an alert", name)
		}
	}
}
