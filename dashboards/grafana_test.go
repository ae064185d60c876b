package dashboards

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

type dataSource struct{ Type, UID string }

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource *dataSource
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct {
		RefID, Expr string
		Datasource  *dataSource
	}
	Panels []panel
}

type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct {
			Name, Type string
			Datasource *dataSource
			Definition string
			// Query is a string, or for Prometheus an object that contains it.
			Query json.RawMessage
		}
	}
	Annotations struct {
		List []struct {
			BuiltIn    int
			Datasource *dataSource
			Expr       string
		}
	}
}

// TestGrafana checks that the dashboard can be imported everywhere, that its metrics exist, and
// that it defines the variables that it uses.
func TestGrafana(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 39 {
		t.Errorf("uid %q, title %q, schemaVersion %d: want all, and a version of Grafana 11 or later", d.UID, d.Title, d.SchemaVersion)
	}
	metrics := binaryMetrics(t)
	portable := func(name string, s *dataSource) {
		t.Helper()
		if s == nil || s.Type != "prometheus" || s.UID != "${datasource}" {
			t.Errorf("%s: data source is %v, want ${datasource}", name, s)
		}
	}
	known := map[string]bool{}
	for _, v := range d.Templating.List {
		known[v.Name] = true
		if v.Type != "query" {
			continue
		}
		portable("variable "+v.Name, v.Datasource)
		var query struct{ Query string }
		if err := json.Unmarshal(v.Query, &query); err != nil || query.Query != v.Definition {
			t.Errorf("variable %s: its query is %s, %v, want its definition %s", v.Name, v.Query, err, v.Definition)
		}
		for _, found := range metrics.checkVariable(v.Definition) {
			t.Errorf("variable %s: %s", v.Name, found)
		}
	}
	for _, name := range []string{"datasource", "job", "instance", "domain", "rule"} {
		if !known[name] {
			t.Errorf("there is no variable %s", name)
		}
	}
	for _, a := range d.Annotations.List {
		if a.BuiltIn == 0 {
			portable("annotation", a.Datasource)
			for _, found := range metrics.check(a.Expr) {
				t.Errorf("annotation: %s", found)
			}
		}
	}
	ids, used := map[int]bool{}, [24 * 200]string{}
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: want a unique id and a title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				if x >= 24 || used[24*y+x] != "" {
					t.Fatalf("panel %q overlaps %q or the edge of the page", p.Title, used[24*y+x])
				}
				used[24*y+x] = p.Title
			}
		}
		if p.Type == "row" {
			if len(p.Panels) > 0 {
				t.Errorf("row %q is collapsed", p.Title)
			}
			continue
		}
		portable("panel "+p.Title, p.Datasource)
		if len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, q := range p.Targets {
			portable("panel "+p.Title, q.Datasource)
			for _, found := range metrics.check(q.Expr) {
				t.Errorf("panel %q: %s", p.Title, found)
			}
			for _, v := range variable.FindAllString(q.Expr, -1) {
				if name := strings.TrimPrefix(v, "$"); !known[name] && !strings.HasPrefix(name, "__") {
					t.Errorf("panel %q: there is no variable %s", p.Title, v)
				}
			}
			if !strings.Contains(q.Expr, `job=~"$job",instance=~"$instance"`) {
				t.Errorf("panel %q does not filter by job and instance: %s", p.Title, q.Expr)
			}
		}
	}
	if len(ids) < 20 {
		t.Errorf("found %d panels, want at least 20", len(ids))
	}
}

// TestEveryMetricIsUsed checks that every metric of sluice is in the dashboard or in an alert, so
// that new ones are not forgotten.
func TestEveryMetricIsUsed(t *testing.T) {
	t.Parallel()
	var all []byte
	for _, file := range []string{"grafana.json", "alerts.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	for name, f := range binaryMetrics(t) {
		base := name
		if f.histogram {
			base = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		}
		if strings.HasPrefix(base, "go_") || strings.HasPrefix(base, "process_") || strings.HasPrefix(base, "promhttp_") {
			continue
		}
		if !strings.Contains(string(all), base) {
			t.Errorf("%s is in neither the dashboard nor an alert: add a panel or a target to grafana.json", base)
		}
	}
}
