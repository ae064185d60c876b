package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// rulesOn is the minimum number of rule files and files of defaults that a page shows.
var rulesOn = map[string]int{"README.md": 2, "docs/rules.md": 14, "docs/defaults.md": 1}

// otherPrograms matches lines with flags of other programs.
var otherPrograms = regexp.MustCompile(`\b(?:kubectl|helm|sha256sum|openssl|docker|oras|skopeo|grype|cosign|istioctl|curl|tar|go test|envoy -c|envoy --mode)\b`)

// TestPages verifies that the rules in all pages load, and that every flag in them exists.
func TestPages(t *testing.T) {
	flags := append(allFlags(t), "help")
	var named tables.Registry // the tables that rules of the pages name
	if _, err := named.Add("customers", ""); err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md", "examples/*/*.md", "kustomize/*.md", "dashboards/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		must.OK(t, err)
		page = strings.TrimPrefix(page, "../../")
		if page == "CHANGELOG.md" {
			continue // it names removed flags
		}
		shown := 0
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(block[1], "domain:") {
				continue // configuration of Envoy, or fragments, which a test of descriptors compiles
			}
			shown++
			var found rules.Diagnostics
			if strings.Contains(block[1], "\ndefaults:") {
				_, found = rulefile.ParseDefaults(page, []byte(block[1]))
			} else {
				var configs []rules.Config
				configs, found = rulefile.Parse(page, []byte(block[1]))
				_, more := descriptors.Compile(configs, descriptors.Options{Tables: &named})
				found = append(found, more...)
			}
			for _, f := range found {
				t.Errorf("%v in\n%s", f, block[1])
			}
		}
		if shown < rulesOn[page] {
			t.Errorf("%s: %d blocks of rules, want %d or more", page, shown, rulesOn[page])
		}
		for line := range strings.Lines(string(text)) {
			if otherPrograms.MatchString(line) {
				continue
			}
			for _, m := range regexp.MustCompile("[ `]--([a-z][a-z-]+)").FindAllStringSubmatch(line, -1) {
				if !slices.Contains(flags, strings.TrimPrefix(m[1], "no-")) && m[1] != "max-" { // --max-...
					t.Errorf("%s: sluice has no flag --%s", page, m[1])
				}
			}
		}
	}
}

// TestRulesPageHasEveryField verifies that docs/rules.md explains each field of the schema.
func TestRulesPageHasEveryField(t *testing.T) {
	text, err := os.ReadFile("../../docs/rules.md")
	must.OK(t, err)
	var schema any
	must.OK(t, json.Unmarshal(rulefile.Schema(), &schema))
	fields := schemaFields(schema)
	if len(fields) < 25 {
		t.Fatalf("the schema has the fields %q, want 25 or more", fields)
	}
	for _, field := range fields {
		if !regexp.MustCompile("(?m)^\\|[^|]*`" + field + "\\b").Match(text) {
			t.Errorf("docs/rules.md has no row for %s: add one to the table of the map that the field is in", field)
		}
	}
}

// schemaFields returns the names of all properties in a JSON schema.
func schemaFields(schema any) []string {
	var fields []string
	switch schema := schema.(type) {
	case map[string]any:
		for name, value := range schema {
			if properties, ok := value.(map[string]any); ok && name == "properties" {
				fields = slices.AppendSeq(fields, maps.Keys(properties))
			}
			fields = append(fields, schemaFields(value)...)
		}
	case []any:
		for _, value := range schema {
			fields = append(fields, schemaFields(value)...)
		}
	}
	return fields
}

func allFlags(t *testing.T) []string {
	t.Helper()
	parser, err := newParser(new(cli), "sluice", console{})
	must.OK(t, err)
	var flags []string
	if err := kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok && !flag.Hidden {
			flags = append(flags, flag.Name)
		}
		return next(nil)
	}); err != nil {
		t.Fatal(err)
	}
	return flags
}

const (
	flagsBegin = "<!-- flags: written by go test ./cmd/sluice -run TestReference -update -->\n"
	flagsEnd   = "<!-- end of flags -->\n"
)

// TestReference compares the tables of docs/reference.md with the flags of serve.
func TestReference(t *testing.T) {
	const path = "../../docs/reference.md"
	text, err := os.ReadFile(path)
	must.OK(t, err)
	head, rest, begun := strings.Cut(string(text), flagsBegin)
	old, tail, ended := strings.Cut(rest, flagsEnd)
	if !begun || !ended {
		t.Fatalf("%s lacks the lines around the tables:\n%s%s", path, flagsBegin, flagsEnd)
	}
	tables := flagTables(t)
	if old == tables {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the help of the flags: run go test ./cmd/sluice -run TestReference -update", path)
	}
	must.OK(t, os.WriteFile(path, []byte(head+flagsBegin+tables+flagsEnd+tail), 0o600))
}

// TestReferenceListsCommands compares the table of commands in docs/reference.md with the commands.
func TestReferenceListsCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference.md")
	must.OK(t, err)
	_, table, _ := strings.Cut(string(page), "## Commands\n")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)(?: ([a-z|\\\\]+))?[ `]").FindAllStringSubmatch(table, -1) {
		listed[row[1]] = true
		for below := range strings.SplitSeq(strings.ReplaceAll(row[2], `\`, ""), "|") {
			listed[strings.TrimSpace(row[1]+" "+below)] = true
		}
	}
	parser, err := newParser(new(cli), "sluice", console{})
	must.OK(t, err)
	for _, command := range parser.Model.Leaves(false) {
		if !listed[command.Path()] {
			t.Errorf("the table lacks %s", command.Path())
		}
		delete(listed, command.Path())
		if command.Parent != nil {
			delete(listed, command.Parent.Path())
		}
	}
	for name := range listed {
		if !strings.Contains(name, " ") && name != "help" { // others are arguments
			t.Errorf("there is no command %s", name)
		}
	}
}

// helpVariables matches the variables at the end of the help of a flag.
var helpVariables = regexp.MustCompile(` \((\$[A-Z][^)]*)\)\.$`)

// flagTables returns the documentation of the flags of serve and of the variables without a flag.
func flagTables(t *testing.T) string {
	t.Helper()
	parser, err := newParser(new(cli), "sluice", console{})
	must.OK(t, err)
	var serve *kong.Node
	for _, command := range parser.Model.Children {
		if command.Name == "serve" {
			serve = command
		}
	}
	const variablesTitle = "Variables without a flag"
	rows := map[string]string{}
	for _, flag := range serve.Flags {
		help := flag.Help
		if m := helpVariables.FindStringSubmatch(help); m != nil {
			help = strings.TrimSuffix(help, m[0]) + "."
			if !flag.Hidden {
				help += " `" + strings.NewReplacer("$", "", ", $", "`, `").Replace(m[1]) + "`"
			}
		}
		name := "--" + flag.Name
		if flag.Tag.Negatable != "" {
			name = "--[no-]" + flag.Name
		}
		if !flag.IsBool() {
			name += "=" + flag.PlaceHolder
		}
		var title string
		switch {
		case flag.Hidden && flag.Name == strings.ToUpper(flag.Name):
			title, name = variablesTitle, flag.Name
		case flag.Hidden || flag.Group == nil: // a constant, or --help-all
			continue
		default:
			title = strings.TrimSuffix(flag.Group.Title, ":")
		}
		cell := strings.NewReplacer("|", `\|`, "<", "&lt;")
		rows[title] += fmt.Sprintf("| `%s` | %s |\n", strings.ReplaceAll(name, "|", `\|`), cell.Replace(help))
	}
	var b strings.Builder
	write := func(title, head string) {
		fmt.Fprintf(&b, "\n### %s\n\n| %s |\n| --- | --- |\n%s", title, head, rows[title])
	}
	for _, group := range serveGroups {
		write(strings.TrimSuffix(group.Title, ":"), "flag | effect, and variables")
	}
	write(variablesTitle, "variable | effect")
	return b.String() + "\n"
}

// TestPagesShowCounterBytes compares the bytes per counter in the tables of README.md and
// docs/sizing.md with those of the limiter.
func TestPagesShowCounterBytes(t *testing.T) {
	bytes := func(algorithm string, n, subWindows uint32) int {
		return limiter.CounterBytes(limiter.Policy{
			Algorithm: map[string]limiter.Algorithm{
				"fixed_window": limiter.FixedWindow, "sliding_window": limiter.SlidingWindow, "sliding_log": limiter.SlidingLog,
				"token_bucket": limiter.TokenBucket, "leaky_bucket": limiter.LeakyBucket,
			}[algorithm],
			Limit: n, Window: time.Hour, SubWindows: subWindows,
		})
	}
	number := regexp.MustCompile(`^[0-9]+$`)
	for page, least := range map[string]int{"README.md": 5, "docs/sizing.md": 6} {
		text, err := os.ReadFile("../../" + page)
		must.OK(t, err)
		rows := 0
		for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z]+_(?:window|log|bucket)`[^|]*)\\|(.*)\\|$").FindAllStringSubmatch(string(text), -1) {
			rows++
			cells := strings.Split(row[2], "|")
			shown := strings.TrimSpace(cells[0])
			if page == "README.md" {
				shown = strings.TrimSpace(cells[len(cells)-1])
			}
			var n, subWindows uint32 = 100, 10 // the default
			if m := regexp.MustCompile(`(\d+)(?: (sub-window)|$)`).FindStringSubmatch(strings.TrimSpace(row[1])); m != nil {
				value, err := strconv.ParseUint(m[1], 10, 32)
				must.OK(t, err)
				if m[2] != "" {
					subWindows = uint32(value)
				} else {
					n = uint32(value)
				}
			}
			algorithm := regexp.MustCompile("`([a-z_]+)`").FindStringSubmatch(row[1])[1]
			want := strconv.Itoa(bytes(algorithm, n, subWindows))
			if !number.MatchString(shown) { // a formula
				want = "32 + 8N"
				if got := bytes(algorithm, n, 0); got != 32+8*int(n) {
					t.Errorf("a log of %d takes %d bytes, not %s", n, got, want)
				}
			}
			if shown != want {
				t.Errorf("%s: %q has %s bytes, want %s", page, row[1], shown, want)
			}
		}
		if rows < least {
			t.Errorf("%s: %d rows of algorithms, want %d or more", page, rows, least)
		}
	}
}
