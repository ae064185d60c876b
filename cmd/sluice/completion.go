package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/shell"
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

type completionCmd struct {
	Shell string   `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
	Words []string `arg:"" optional:"" passthrough:"" hidden:"" help:"Words of the command line to complete (after --). Prints candidates for the last word."`
}

func (k completionCmd) Run(c console, app *kong.Kong) error {
	if len(k.Words) == 0 {
		_, err := c.out.Write([]byte(shell.Script(k.Shell)))
		return err
	}
	words := k.Words
	if words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	return shell.Complete(app.Model, ruleReader{c}, words).Write(c.out)
}

// ruleReader reads the rules that a command line names.
type ruleReader struct{ console }

var _ shell.Rules = ruleReader{}

func (r ruleReader) load(paths []string) *descriptors.Set {
	if slices.Contains(paths, "-") {
		return nil // standard input belongs to the shell
	}
	// Merging domains does not change the candidates.
	set, err := (&ruleFlags{MergeDomains: true}).loadValid(r.console, paths)
	if err != nil {
		return nil
	}
	return set
}

func (r ruleReader) Domains(paths []string) []string {
	set := r.load(paths)
	if set == nil {
		return nil
	}
	return set.Domains()
}

func (r ruleReader) Keys(paths []string, domain, descriptor string) []string {
	set := r.load(paths)
	if set == nil {
		return nil
	}
	before := "" // the entries that are complete
	if i := strings.LastIndexByte(descriptor, ','); i >= 0 {
		before = descriptor[:i+1]
	}
	depth := strings.Count(before, ",")
	var keys []string
	for _, limit := range set.Limits {
		levels := limit.Rule.Levels()
		if domain != "" && limit.Rule.Domain() != domain || len(levels) <= depth || !hasKeys(before, levels) {
			continue
		}
		next := before + levels[depth].Key + "="
		if value := levels[depth].Value; !strings.Contains(value, "*") {
			next += value
		}
		keys = append(keys, next)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// hasKeys reports whether the keys of the entries are those of the first levels.
func hasKeys(entries string, levels []rules.Level) bool {
	for i, entry := range strings.Split(strings.TrimSuffix(entries, ","), ",") {
		key, _, _ := strings.Cut(entry, "=")
		if entries != "" && levels[i].Key != key {
			return false
		}
	}
	return true
}

type manCmd struct{}

func (manCmd) Run(c console, app *kong.Kong) error { return shell.Manual(c.out, app.Model, version()) }
