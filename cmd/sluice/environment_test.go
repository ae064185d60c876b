package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestBooleans verifies that booleans are parsed by strconv.ParseBool, as in envoyproxy/ratelimit.
func TestBooleans(t *testing.T) {
	for text, want := range map[string]bool{
		"1": true, "t": true, "T": true, "true": true, "TRUE": true, "True": true,
		"0": false, "f": false, "F": false, "false": false, "FALSE": false, "False": false,
		"": false, // counts as unset
	} {
		t.Setenv("SHADOW_MODE", text)
		root, err := parse(t, "serve")
		if err != nil || root.Serve.Settings.ShadowMode != want {
			t.Errorf("SHADOW_MODE=%q: %v, %v, want %v", text, root.Serve.Settings.ShadowMode, err, want)
		}
	}
	for _, text := range []string{"yes", "on", "tRUE", "2", " true"} {
		t.Setenv("SHADOW_MODE", text)
		if _, err := parse(t, "serve"); err == nil || !strings.Contains(err.Error(), `SHADOW_MODE="`+text+`"`) {
			t.Errorf("SHADOW_MODE=%q: error %v, want one that names it", text, err)
		}
	}
}

// TestVariablesSetFlagsThatExist verifies that serve has every flag that a row of the table names.
func TestVariablesSetFlagsThatExist(t *testing.T) {
	parser, err := newParser(new(cli), "sluice", console{})
	must.OK(t, err)
	var flags []string
	for _, command := range parser.Model.Children {
		if command.Name == "serve" {
			for _, f := range command.Flags {
				flags = append(flags, f.Name)
				if len(f.Envs) > 0 {
					t.Errorf("--%s has variables %v in its tag; move them to the table", f.Name, f.Envs)
				}
			}
		}
	}
	for v := range environment.All() {
		if v.Flag != "" && !slices.Contains(flags, v.Flag) {
			t.Errorf("%s sets --%s, which does not exist", v.Name, v.Flag)
		}
	}
}

func parse(t *testing.T, args ...string) (*cli, error) {
	t.Helper()
	var root cli
	parser, err := newParser(&root, "sluice", console{nil, io.Discard, io.Discard})
	must.OK(t, err)
	_, err = parser.Parse(args)
	return &root, err
}
