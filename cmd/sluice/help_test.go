package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestHelpOfEachCommand verifies that the help of each command has examples, which parse, and the
// address of a page of this repository, and that the manual page has the same.
func TestHelpOfEachCommand(t *testing.T) {
	parser, err := newParser(new(cli), "sluice", console{})
	must.OK(t, err)
	var manual bytes.Buffer
	run(t.Context(), []string{"sluice", "man"}, console{out: &manual})
	for _, command := range parser.Model.Leaves(false) {
		var help bytes.Buffer
		if code := run(t.Context(), append([]string{"sluice"}, append(strings.Fields(command.Path()), "--help")...), console{out: &help}); code != 0 {
			t.Errorf("%s --help: exit code %d", command.Path(), code)
		}
		if strings.Contains(help.String(), "%%") {
			t.Errorf("%s: the help has a doubled percent sign:\n%s", command.Path(), help.String())
		}
		_, page, found := strings.Cut(help.String(), "\nSee https://github.com/sluice-ratelimit/sluice/blob/main/")
		page, _, _ = strings.Cut(page, "\n")
		if _, err := os.Stat("../../" + page); !found || err != nil {
			t.Errorf("%s: the help names the page %q: %v", command.Path(), page, err)
		}
		examples := 0
		for line := range strings.Lines(command.Detail) {
			example, isExample := strings.CutPrefix(line, "    ")
			if !isExample {
				continue
			}
			examples++
			example = strings.TrimSpace(example)
			if !strings.Contains(help.String(), example) || !command.Hidden && !strings.Contains(manual.String(), strings.ReplaceAll(example, "-", `\-`)) {
				t.Errorf("%s: the help or the manual page lacks the example %q", command.Path(), example)
			}
			if _, after, piped := strings.Cut(example, " | "); piped && strings.HasPrefix(after, "sluice") {
				example = after
			}
			words := arguments(strings.NewReplacer(" | man -l -", "", " > rules.schema.json", "", "source <(", "", ")", "").Replace(example))
			if parsed, err := parser.Parse(words[1:]); err != nil || parsed.Selected().Path() != command.Path() {
				t.Errorf("%s: the example %q does not parse: %v", command.Path(), example, err)
			}
		}
		if examples == 0 {
			t.Errorf("%s: the help has no example", command.Path())
		}
	}
}

// TestHelpOfServe verifies that the help of serve is short, and that --help-all has each flag.
func TestHelpOfServe(t *testing.T) {
	helps := map[string]string{}
	for _, flag := range []string{"--help", "--help-all"} {
		var help bytes.Buffer
		if code := run(t.Context(), []string{"sluice", "serve", flag}, console{out: &help}); code != 0 {
			t.Errorf("%s: exit code %d", flag, code)
		}
		helps[flag] = help.String()
		for line := range strings.Lines(help.String()) {
			if n := len(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: a line has %d columns: %s", flag, n, line)
			}
		}
	}
	if n := strings.Count(helps["--help"], "\n"); n > 60 {
		t.Errorf("--help has %d lines, want at most 60", n)
	}
	parser, err := newParser(new(cli), "sluice", console{})
	must.OK(t, err)
	for _, flag := range parser.Model.Children[0].Flags {
		if found := regexp.MustCompile("--(\\[no-\\])?" + flag.Name + "\\b").MatchString(helps["--help-all"]); found == flag.Hidden {
			t.Errorf("--help-all has --%s: %v", flag.Name, found)
		}
		if common := slices.Contains(commonFlags, flag.Name); common != strings.Contains(helps["--help"], "  --"+flag.Name) && flag.Short == 0 {
			t.Errorf("--help has --%s: %v", flag.Name, !common)
		}
	}
}

// TestHiddenFlags rejects the names of variables and constants on the command line.
func TestHiddenFlags(t *testing.T) {
	defer func(old string) { hiddenFlags = old }(hiddenFlags)
	hiddenFlags = ""
	for _, name := range []string{"max-streams", "NEAR_LIMIT_RATIO"} {
		var errors bytes.Buffer
		if code := run(t.Context(), []string{"sluice", "--" + name + "=1"}, console{err: &errors}); code != 2 || !strings.HasPrefix(errors.String(), "sluice: unknown flag --"+name+"\n") {
			t.Errorf("--%s: exit code %d, %s", name, code, errors.String())
		}
	}
}
