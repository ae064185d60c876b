package environment

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/migrating.md")

// TestVariablesAreTheReferences compares the table with the list of what
// envoyproxy/ratelimit reads.
func TestVariablesAreTheReferences(t *testing.T) {
	text, err := os.ReadFile("testdata/reference/variables.tsv")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	read := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			t.Fatalf("%d fields, want 4: %q", len(fields), line)
		}
		want[fields[1]] = fields[2] + " " + fields[3]
		if fields[0] == "settings" {
			read++
		}
	}
	if read != 114 {
		t.Errorf("%d of envoyproxy/ratelimit's own settings, want 114", read)
	}
	for v := range All() {
		got := string(v.kind) + " " + v.preset
		switch other, ok := want[v.Name]; {
		case !ok:
			t.Errorf("%s is in the table twice, or not envoyproxy/ratelimit's", v.Name)
		case got != other:
			t.Errorf("%s is %q, want %q", v.Name, got, other)
		}
		delete(want, v.Name)
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

// TestPresets holds that a default is of its row's kind, and that a row without effect
// says why.
func TestPresets(t *testing.T) {
	for v := range All() {
		if err := v.check(v.preset); v.preset != "" && err != nil {
			t.Errorf("the default of %s: %v", v.Name, err)
		}
		if !v.Supported() && v.note == "" {
			t.Errorf("%s has no effect and does not say why", v.Name)
		}
	}
}

const (
	tableBegins = "<!-- variables: written by go test ./cmd/sluice/environment -run TestMigrating -update -->\n"
	tableEnds   = "<!-- end of variables -->\n"
)

// TestMigratingHasTheTable holds that docs/migrating.md says what the table says.
func TestMigratingHasTheTable(t *testing.T) {
	const path = "../../../docs/migrating.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), tableBegins)
	old, tail, ended := strings.Cut(rest, tableEnds)
	if !ok || !ended {
		t.Fatalf("%s lacks the lines around the table:\n%s%s", path, tableBegins, tableEnds)
	}
	table := variableTable()
	if old == table {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the table of variables says: run go test ./cmd/sluice/environment -run TestMigrating -update", path)
	}
	if err := os.WriteFile(path, []byte(head+tableBegins+table+tableEnds+tail), 0o600); err != nil {
		t.Fatal(err)
	}
}

// variableTable returns the documentation of all variables.
func variableTable() string {
	var b strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&b, "\n### %s\n\n| variable | type | default there | here |\n| --- | --- | --- | --- |\n", s.title)
		for i := range s.variables {
			v := &s.variables[i]
			here := string(v.status)
			if v.Flag != "" {
				here = "`--" + v.Flag + "`"
			}
			if v.note != "" {
				here += ": " + v.note
			}
			preset := ""
			if v.preset != "" {
				preset = "`" + v.preset + "`"
			}
			kind := map[kind]string{aDuration: "duration", aList: "list", aMap: "map"}[v.kind]
			if kind == "" {
				kind = string(v.kind)
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.Name, kind, preset, here)
		}
	}
	return b.String() + "\n"
}
