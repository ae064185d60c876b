package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// TestReportsAreDocumented verifies that docs/reference.md has each field of the reports that
// commands print as JSON.
func TestReportsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference.md")
	must.OK(t, err)
	_, section, _ := strings.Cut(string(text), "## JSON output")
	section, _, _ = strings.Cut(section, "\n## ")
	fields := 0
	for _, of := range []reflect.Type{
		reflect.TypeFor[admin.CounterReport](), reflect.TypeFor[admin.RuleLimit](), reflect.TypeFor[admin.CounterState](), reflect.TypeFor[admin.HeldState](), reflect.TypeFor[admin.NextRequest](),
		reflect.TypeFor[admin.TablesReport](), reflect.TypeFor[admin.TableReport](), reflect.TypeFor[rowsReport](), reflect.TypeFor[live.Reset](),
	} {
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if fields++; name != "token" && f.IsExported() && !strings.Contains(section, "`"+name+"`") { // the token of a preview
				t.Errorf("docs/reference.md lacks `%s` of %s", name, of)
			}
		}
	}
	if fields < 40 {
		t.Errorf("%d fields were found, want at least 40", fields)
	}
}
