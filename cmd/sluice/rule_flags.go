package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/server/ruleset"
)

// ruleFlags are flags that check and explain share with serve, and with its variables.
type ruleFlags struct {
	Defaults     string `placeholder:"FILE" help:"Same as serve --defaults."`
	MergeDomains bool   `help:"Same as serve --merge-domains."`
	AllOrNothing bool   `help:"Same as serve --all-or-nothing."`
	tableFlags   `embed:""`

	CalendarMonths bool `help:"Same as serve --calendar-months."`

	// given says that one of these flags stands on the command line: variables may set them too.
	given bool
	// hashKey is what counters' identities are hashed with.
	hashKey identity.Key
	// ratelimitNames says to find out which names counters have: see [descriptors.Options].
	ratelimitNames bool
}

// sharedVariables are the flags of ruleFlags that variables set.
var sharedVariables = []string{"merge-domains", "all-or-nothing", "calendar-months"}

// BeforeResolve has the environment set them.
func (f *ruleFlags) BeforeResolve(ctx *kong.Context) error {
	f.given = slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool {
		return p.Flag != nil && (slices.Contains([]string{"defaults", "table", "tables-dir"}, p.Flag.Name) || slices.Contains(sharedVariables, p.Flag.Name))
	})
	_, err := environment.Resolve(ctx, sharedVariables)
	return err
}

// load reads rules that may be streams too: - is standard input, and /dev/fd/N what
// a shell's <(command) is. They are read once, so that serve cannot have them.
func (f *ruleFlags) load(c console, paths []string) (*descriptors.Set, rules.Diagnostics, error) {
	var files []string
	var streams []source.File
	for _, path := range paths {
		var stream source.File
		var err error
		switch {
		case !isStream(path):
			files = append(files, path)
			continue
		case strings.HasPrefix(path, descriptorDir):
			stream, err = readOpen(path)
		default:
			stream, err = source.ReadStream("stdin", c.in)
		}
		if err != nil {
			return nil, nil, err
		}
		streams = append(streams, stream)
	}
	options, warnings, err := f.options()
	if err != nil {
		return nil, nil, err
	}
	set, found, err := source.Load(files, f.Defaults, options, streams...)
	return set, append(warnings, found...), err
}

// options say how the rules compile, with the tables that files have. Warnings are those about these files.
func (f *ruleFlags) options() (o descriptors.Options, warnings rules.Diagnostics, err error) {
	all, warnings, err := f.loadTables()
	return descriptors.Options{
		MergeDomains: f.MergeDomains, AllOrNothing: f.AllOrNothing, CalendarMonths: f.CalendarMonths,
		HashKey: f.hashKey, RatelimitNames: f.ratelimitNames, Tables: all,
	}, warnings, err
}

// descriptorDir has the open files of a process, such as those of a shell's <(command).
const descriptorDir = "/dev/fd/"

// isStream reports whether a path can be read only once.
func isStream(path string) bool {
	return path == "-" || path == "/dev/stdin" || strings.HasPrefix(path, descriptorDir)
}

func readOpen(path string) (source.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return source.File{}, err
	}
	defer f.Close()
	return source.ReadStream(path, f)
}

// loadGood returns rules without an error. It prints the warnings about files of tables.
func (f *ruleFlags) loadGood(c console, paths []string) (*descriptors.Set, error) {
	if len(paths) == 0 {
		paths = []string{"./config"}
	}
	set, diagnostics, err := f.load(c, paths)
	if err != nil {
		return nil, ruleset.RulesError(err, f.Defaults)
	}
	for _, d := range diagnostics {
		if d.Severity == rules.Warning && slices.ContainsFunc(f.Table, func(t tableFlag) bool { return t.path == d.Pos.File }) {
			fmt.Fprintln(c.err, d)
		}
	}
	if err := diagnostics.Err(); err != nil {
		return nil, fmt.Errorf("these rules do not load:\n%w", err)
	}
	return set, nil
}

// isConfigured returns an error if --domain is none of those of the rules.
func isConfigured(domain string, names []string) error {
	if slices.Contains(names, domain) {
		return nil
	}
	return fmt.Errorf("--domain %q is not configured%s", domain, rules.DidYouMean(rules.Nearest(domain, names)))
}
