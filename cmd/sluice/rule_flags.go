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

// ruleFlags are flags of serve that the commands that read rules also have.
type ruleFlags struct {
	Defaults     string `placeholder:"FILE" help:"File with default values of rule fields such as algorithm and burst."`
	MergeDomains bool   `help:"Merge files with the same domain. Default: an error."`
	AllOrNothing bool   `help:"If any limit denies a request, charge none of its counters, in all domains."`
	tableFlags   `embed:""`

	CalendarMonths bool `help:"Use calendar months in UTC as the windows of monthly limits. Default: 30-day windows."`

	// given is true if the command line, as opposed to the environment, sets one of these flags.
	given bool
	// hashKey is the key for hashing the identities of counters.
	hashKey identity.Key
	// ratelimitNames is RatelimitNames of [descriptors.Options].
	ratelimitNames bool
}

// sharedVariables are the flags of ruleFlags that environment variables set.
var sharedVariables = []string{"merge-domains", "all-or-nothing", "calendar-months"}

// BeforeResolve adds the environment as a source of flags.
func (f *ruleFlags) BeforeResolve(ctx *kong.Context) error {
	f.given = slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool {
		return p.Flag != nil && (slices.Contains([]string{"defaults", "table", "tables-dir"}, p.Flag.Name) ||
			slices.Contains(sharedVariables, p.Flag.Name))
	})
	_, err := environment.Resolve(ctx, sharedVariables)
	return err
}

// load reads rules from files and streams: - is standard input, and /dev/fd/N is the output of
// <(command) in a shell. serve does not accept streams, because it reads rules again.
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

// options loads the tables. It returns the options for compiling rules, and warnings about table
// files.
func (f *ruleFlags) options() (o descriptors.Options, warnings rules.Diagnostics, err error) {
	all, warnings, err := f.loadTables()
	return descriptors.Options{
		MergeDomains: f.MergeDomains, AllOrNothing: f.AllOrNothing, CalendarMonths: f.CalendarMonths,
		HashKey: f.hashKey, RatelimitNames: f.ratelimitNames, Tables: all,
	}, warnings, err
}

// descriptorDir is the directory of the open files of a process, such as <(command) of a shell.
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

// loadValid loads rules, by default from ./config. It returns an error if they have errors, and
// prints warnings about table files.
func (f *ruleFlags) loadValid(c console, paths []string) (*descriptors.Set, error) {
	if len(paths) == 0 {
		paths = []string{"./config"}
	}
	set, diagnostics, err := f.load(c, paths)
	if err != nil {
		return nil, ruleset.RulesError(err, f.Defaults)
	}
	for _, d := range diagnostics {
		if d.Severity == rules.Warning &&
			slices.ContainsFunc(f.Table, func(t tableFlag) bool { return t.path == d.Pos.File }) {
			fmt.Fprintln(c.err, d)
		}
	}
	if err := diagnostics.Err(); err != nil {
		return nil, fmt.Errorf("failed to load rules:\n%w", err)
	}
	return set, nil
}

// checkDomain returns an error if names, the domains of the rules, do not contain domain.
func checkDomain(domain string, names []string) error {
	if slices.Contains(names, domain) {
		return nil
	}
	return fmt.Errorf("--domain %q: the rules have no such domain%s", domain,
		rules.DidYouMean(domain, names))
}
