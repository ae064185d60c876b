package live

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestEachFieldIsDocumented compares docs/state.md with the JSON of a state.
func TestEachFieldIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/state.md")
	if err != nil {
		t.Fatal(err)
	}
	seen, fields := map[reflect.Type]bool{}, 0
	var look func(of reflect.Type)
	look = func(of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] || of.PkgPath() == "time" {
			return
		}
		seen[of] = true
		for f := range of.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				fields++
				if !strings.Contains(string(text), "`"+name+"`") {
					t.Errorf("docs/state.md lacks `%s` of %s", name, of)
				}
			}
			look(f.Type)
		}
	}
	look(reflect.TypeFor[State]())
	look(reflect.TypeFor[Reset]())
	if fields < 50 {
		t.Errorf("%d fields were found, want at least 50", fields)
	}
}
