package live

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestEachFieldIsDocumented checks that docs/state.md contains each JSON field of State and Reset, and
// that its tables of the JSON contain no others.
func TestEachFieldIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/state.md")
	if err != nil {
		t.Fatal(err)
	}
	seen, fields := map[reflect.Type]bool{}, map[string]bool{}
	var visit func(typ reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || typ.PkgPath() == "time" {
			return
		}
		seen[typ] = true
		for f := range typ.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				fields["`"+name+"`"] = true
				if !strings.Contains(string(text), "`"+name+"`") {
					t.Errorf("docs/state.md lacks `%s` of %s", name, typ)
				}
			}
			visit(f.Type)
		}
	}
	visit(reflect.TypeFor[State]())
	visit(reflect.TypeFor[Reset]())
	_, tables, _ := strings.Cut(string(text), "\n## The JSON\n")
	documented := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| .*\|$`).FindAllStringSubmatch(tables, -1) {
		for _, name := range regexp.MustCompile("`[^`]*`").FindAllString(row[1], -1) {
			documented++
			if !fields[name] {
				t.Errorf("docs/state.md has %s, which is no field", name)
			}
		}
	}
	if len(fields) < 50 || documented < 50 {
		t.Errorf("%d fields were found, and %d in the tables, want at least 50", len(fields), documented)
	}
}
