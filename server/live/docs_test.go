package live

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestEachFieldIsDocumented checks that docs/state.md contains each JSON field of State and Reset.
func TestEachFieldIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/state.md")
	if err != nil {
		t.Fatal(err)
	}
	seen, fields := map[reflect.Type]bool{}, 0
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
				fields++
				if !strings.Contains(string(text), "`"+name+"`") {
					t.Errorf("docs/state.md lacks `%s` of %s", name, typ)
				}
			}
			visit(f.Type)
		}
	}
	visit(reflect.TypeFor[State]())
	visit(reflect.TypeFor[Reset]())
	if fields < 50 {
		t.Errorf("%d fields were found, want at least 50", fields)
	}
}
