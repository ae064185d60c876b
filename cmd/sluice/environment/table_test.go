package environment

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

var update = flag.Bool("update", false, "rewrite docs/migrating.md")

// TestTableMatchesRatelimit compares the table with the list of variables that envoyproxy/ratelimit
// reads.
func TestTableMatchesRatelimit(t *testing.T) {
	text, err := os.ReadFile("testdata/reference/variables.tsv")
	must.OK(t, err)
	want := map[string]string{}
	settings := 0
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
			settings++
		}
	}
	if settings != 114 {
		t.Errorf("%d settings of envoyproxy/ratelimit itself, want 114", settings)
	}
	for v := range All() {
		got := string(v.kind) + " " + v.preset
		switch other, ok := want[v.Name]; {
		case !ok:
			t.Errorf("%s is in the table twice, or envoyproxy/ratelimit does not read it", v.Name)
		case got != other:
			t.Errorf("%s is %q, want %q", v.Name, got, other)
		}
		delete(want, v.Name)
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

// TestPresets verifies that defaults are valid, and that each row without effect has a reason.
func TestPresets(t *testing.T) {
	for v := range All() {
		if err := v.check(v.preset); v.preset != "" && err != nil {
			t.Errorf("the default of %s: %v", v.Name, err)
		}
		if !v.Supported() && v.note == "" {
			t.Errorf("%s has no effect and no reason", v.Name)
		}
	}
}

// TestNoVariableIsSilent sets each variable to a value other than its default, alone and together
// with others. It must set a flag, be an error, or cause a warning.
func TestNoVariableIsSilent(t *testing.T) {
	values := map[kind][]string{
		aString: {"a,127.0.0.1:1"}, aBool: {"true", "false"}, anInt: {"7"}, anInt64: {"7"}, aFloat32: {"0.5"}, aFloat64: {"0.25"},
		aDuration: {"7s"}, aList: {"a"}, aMap: {"a:b"},
	}
	chosen := map[string]string{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "BACKEND_TYPE": "memory", "STATSD_PROTOCOL": "udp", "TRACING_EXPORTER_PROTOCOL": "grpc",
		"REDIS_TYPE": "cluster", "REDIS_PERSECOND_TYPE": "cluster", "REDIS_SOCKET_TYPE": "tcp", "REDIS_PERSECOND_SOCKET_TYPE": "tcp",
	}
	environments := [][]string{
		nil,
		{"REDIS_URL=a:1", "REDIS_PERSECOND=true", "REDIS_PERSECOND_URL=b:1", "REDIS_TLS=true", "REDIS_PERSECOND_TLS=true"},
		{"REDIS_URL=a,b:1", "REDIS_TYPE=sentinel", "REDIS_PERSECOND=true", "REDIS_PERSECOND_URL=a,b:1", "REDIS_PERSECOND_TYPE=sentinel"},
		{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=c", "GRPC_SERVER_TLS_KEY=k"},
		{"USE_STATSD=true", "TRACING_ENABLED=true", "RUNTIME_WATCH_ROOT=false"},
		{"USE_DOG_STATSD=true", "USE_STATSD=false", "RUNTIME_SUBDIRECTORY=s"},
		{"DISABLE_STATS=true", "BACKEND_TYPE=memory"},
	}
	for v := range All() {
		for _, value := range values[v.kind] {
			if only, ok := chosen[v.Name]; ok {
				value = only
			}
			if v.has(port) {
				value = "7"
			}
			if value == v.preset || strings.ContainsAny(v.Name, "*<") {
				continue // the default, or a name with a placeholder
			}
			for _, others := range environments {
				if slices.ContainsFunc(others, func(item string) bool { return strings.HasPrefix(item, v.Name+"=") }) {
					continue
				}
				e, err := Read(append(slices.Clone(others), v.Name+"="+value), nil, map[string]bool{})
				logged := e.effect(v) + e.unused[v.Name] + strings.Join(e.tolerated, " ")
				always := v.Name == "RUNTIME_IGNOREDOTFILES" // sluice always behaves as if it were true
				if logged == "" && err == nil && !always {
					t.Errorf("%s=%s is silent with %v", v.Name, value, others)
				}
			}
		}
	}
}

const (
	tableBegins = "<!-- variables: written by go test ./cmd/sluice/environment -run TestMigrating -update -->\n"
	tableEnds   = "<!-- end of variables -->\n"
)

// TestMigratingHasTheTable compares docs/migrating.md with the table.
func TestMigratingHasTheTable(t *testing.T) {
	const path = "../../../docs/migrating.md"
	text, err := os.ReadFile(path)
	must.OK(t, err)
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
		t.Fatalf("%s differs from the table of variables: run go test ./cmd/sluice/environment -run TestMigrating -update", path)
	}
	must.OK(t, os.WriteFile(path, []byte(head+tableBegins+table+tableEnds+tail), 0o600))
}

// variableTable returns the documentation of all variables. Neighbours with the same effect share a
// row, and so do those without a note, and those of the store for limits of one second.
func variableTable() string {
	var b strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&b, "\n### %s\n\n| variable | default there | here |\n| --- | --- | --- |\n", s.title)
		var perSecond, same []string
		variables := slices.DeleteFunc(slices.Clone(s.variables), func(v Variable) bool {
			switch {
			case strings.HasPrefix(v.Name, "REDIS_PERSECOND_"):
				perSecond = append(perSecond, "`"+v.Name+"`")
			case v.Supported() && v.note == "":
				same = append(same, "`"+v.Name+"`")
			default:
				return false
			}
			return true
		})
		for len(variables) > 0 {
			here := effectHere(&variables[0])
			n := slices.IndexFunc(variables, func(v Variable) bool { return effectHere(&v) != here })
			if n < 0 {
				n = len(variables)
			}
			writeRow(&b, variables[:n], here)
			variables = variables[n:]
		}
		if same != nil {
			fmt.Fprintf(&b, "| %s | | the same |\n", strings.Join(same, ", "))
		}
		if perSecond != nil {
			fmt.Fprintf(&b, "| %s | | as those without `PERSECOND`, for `--store-per-second`; the files of REDIS_TLS apply to both |\n", strings.Join(perSecond, ", "))
		}
	}
	return b.String() + "\n"
}

// writeRow writes the row of variables with the same effect. It omits defaults that have none.
func writeRow(b *strings.Builder, variables []Variable, here string) {
	var names, defaults []string
	for i := range variables {
		v := &variables[i]
		names = append(names, "`"+v.Name+"`")
		if v.preset != "" && !v.has(accepted) {
			defaults = append(defaults, "`"+v.preset+"`")
		}
	}
	fmt.Fprintf(b, "| %s | %s | %s |\n", strings.Join(names, ", "), strings.Join(slices.Compact(defaults), ", "), here)
}

// effectHere returns the flag that a variable sets, or its effect.
func effectHere(v *Variable) string {
	here := "supported"
	switch {
	case v.Flag != "" && v.Flag != v.Name:
		here = "`--" + v.Flag + "`"
	case v.has(accepted):
		here = "no effect"
	case v.has(rejected):
		here = "rejected"
	}
	if v.note != "" {
		here += ": " + v.note
	}
	return here
}
