package rulefile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestEmbeddedPlaces embeds the files of testdata/load in ConfigMaps, as block scalars and as JSON,
// and checks that each finding has its position in the ConfigMap, or that of the JSON.
func TestEmbeddedPlaces(t *testing.T) {
	files, err := filepath.Glob("testdata/load/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob = %v, %v, want files", files, err)
	}
	const head = "apiVersion: v1\nkind: ConfigMap\ndata:\n"
	compared := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must.OK(t, err)
		text := string(raw)
		if !rulesAtMargin.MatchString(text) || strings.Contains(file, "kubernetes") || strings.Contains(file, "alias_bomb") || !utf8.Valid(raw) || strings.ContainsAny(text, "\r\t\x00\x07\x7f\ufeff") {
			continue // not a rule file, or not embeddable without changes
		}
		_, alone := Parse("f", raw)
		t.Run(filepath.Base(file)+"/json", func(t *testing.T) {
			compared++
			quoted, err := json.Marshal(text)
			must.OK(t, err)
			_, there := Parse("f", []byte(head+`  "r": `+string(quoted)+"\n"))
			if len(there) != len(alone) {
				t.Fatalf("the file has the diagnostics %v\nin a ConfigMap %v", alone, there)
			}
			for _, d := range there { // the text has no lines of its own
				if want := (rules.Pos{File: "f", Line: 4, Col: len(`  "r": `) + 1}); d.Pos != want {
					t.Errorf("got %v at %v, want it at %v", d, d.Pos, want)
				}
			}
		})
		var block yaml.Node
		indented := regexp.MustCompile(`(?m)^(.+)$`).ReplaceAllString(text, "    $1")
		whole := head + "  r: |\n" + indented
		if yaml.Load([]byte(whole), &block) != nil || block.Content[0].Content[5].Content[1].Value != text {
			continue // it begins with a space, or does not end with a newline
		}
		t.Run(filepath.Base(file)+"/block", func(t *testing.T) {
			compared++
			_, there := Parse("f", []byte(whole))
			comparePositions(t, alone, there, func(p rules.Pos) rules.Pos { return rules.Pos{File: "f", Line: p.Line + 4, Col: p.Col + 4} })
		})
	}
	if compared < len(files) {
		t.Errorf("%d of twice %d files were compared", compared, len(files))
	}
}

var lineInText = regexp.MustCompile(`line \d+`)

func comparePositions(t *testing.T, alone, there rules.Diagnostics, mapPos func(rules.Pos) rules.Pos) {
	t.Helper()
	if len(alone) != len(there) {
		t.Fatalf("the file has the diagnostics %v\nin a ConfigMap %v", alone, there)
	}
	for i, want := range alone {
		want.Pos = mapPos(want.Pos)
		want.Message = lineInText.ReplaceAllString(want.Message, "line N")
		there[i].Message = lineInText.ReplaceAllString(there[i].Message, "line N")
		if there[i] != want {
			t.Errorf("got  %v\nwant %v", there[i], want)
		}
	}
}

// TestEmbeddedFilesAreBoundedTogether has a ConfigMap with many files, each of which expands to
// half of the maximum.
func TestEmbeddedFilesAreBoundedTogether(t *testing.T) {
	var text strings.Builder
	text.WriteString("apiVersion: v1\nkind: ConfigMap\ndata:\n")
	for n := range 5 {
		fmt.Fprintf(&text, "  f%d: |\n    domain: d%d\n    descriptors:\n    - key: k\n      metadata:\n        a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n", n, n)
		for i := range 5 {
			fmt.Fprintf(&text, "        a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
		}
	}
	if _, ds := Parse("f", []byte(text.String())); !strings.Contains(fmt.Sprint(ds), "counted through aliases") {
		t.Errorf("found %v, want an error that the files are too large", ds)
	}
}
