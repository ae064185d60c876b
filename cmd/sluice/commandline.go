package main

import (
	_ "embed"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// rewriteHelpCommand turns "help COMMAND" into "COMMAND --help". A second --help would print the help
// again.
func rewriteHelpCommand(args []string) []string {
	isHelp := func(arg string) bool { return arg == "--help" || arg == "-h" }
	if len(args) > 0 && args[0] == "help" {
		return append(slices.DeleteFunc(slices.Clone(args[1:]), isHelp), "--help")
	}
	return args
}

// newParser returns a parser of the command line and the environment into root.
func newParser(root any, name string, c console, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(root, append(options,
		kong.Name(name),
		kong.Description("A rate-limit service for Envoy that decides in its own memory."),
		kong.Writers(c.out, c.err),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}), kong.Help(printHelp),
		programDefaults(name),
		kong.Vars{"version": versionText(currentBuild())},
		kong.ExplicitGroups(serveGroups),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), ranged(parseDuration)),
		kong.TypeMapper(reflect.TypeFor[netip.Addr](), parsed(netip.ParseAddr)),
		kong.NamedMapper("size", ranged(parseSize)),
		kong.NamedMapper("count", ranged(parseCount)),
		kong.NamedMapper("address", parsed(parseAddress)),
		kong.NamedMapper("header", parsed(parseHeader)),
		kong.NamedMapper("soft-header", parsed(parseSoftHeader)),
		kong.NamedMapper("mode", parsed(parseMode)),
		kong.NamedMapper("path", parsed(parsePath)),
		kong.NamedMapper("filled", parsed(parseNonEmpty)),
		kong.NamedMapper("ratio", parsed(parseRatio)),
		kong.NamedMapper("tags", parsed(telemetry.ParseTags)),
		kong.PostBuild(completeHelp), kong.PostBuild(addExamples),
	)...)
}

// commandExamples has the page of each command and its examples, in the form
//
//	COMMAND: docs/PAGE.md
//	    EXAMPLE
//
//go:embed examples.txt
var commandExamples string

// addExamples adds examples and the address of the page to the help of each command.
func addExamples(k *kong.Kong) error {
	for _, command := range k.Model.Leaves(false) {
		_, after, _ := strings.Cut("\n"+commandExamples, "\n"+command.Path()+": ")
		page, after, _ := strings.Cut(after, "\n")
		command.Detail = "Examples:\n\n"
		for line := range strings.Lines(after) {
			if !strings.HasPrefix(line, " ") {
				break
			}
			command.Detail += line
		}
		command.Detail += "\nSee https://github.com/sluice-ratelimit/sluice/blob/main/" + page
	}
	return nil
}

// completeHelp adds to the help of flags and arguments their defaults, unless the help has the word
// Default, and the environment variables that set a flag.
func completeHelp(k *kong.Kong) error {
	for _, command := range k.Model.Leaves(false) {
		for _, argument := range command.Positional {
			appendDefault(argument)
		}
		for _, flag := range command.Flags {
			appendDefault(flag.Value)
			names := environment.Of(flag.Name)
			if command.Name != "serve" && !slices.Contains(sharedVariables, flag.Name) {
				continue
			}
			if len(names) > 0 {
				flag.Help = strings.TrimSuffix(flag.Help, ".") + " ($" + strings.Join(names, ", $") + ")."
			}
		}
	}
	return nil
}

func appendDefault(v *kong.Value) {
	if v.Default != "" && !v.IsBool() && !strings.Contains(v.Help, "Default") {
		v.Help += " Default: " + v.Default + "."
	}
}

// commandName returns the name of the program with the command that err is about.
func commandName(args []string, name string, err error) string {
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		return name
	}
	// The default command is selected even if args do not contain it.
	if command := parse.Context.Selected(); command != nil && slices.Contains(args[1:], command.Name) {
		return name + " " + command.Path()
	}
	return name
}

// programDefaults returns the defaults that depend on the name of the program: under
// ratelimitProgram they are those of envoyproxy/ratelimit.
func programDefaults(name string) kong.Vars {
	if name == ratelimitProgram {
		return kong.Vars{"onBadStart": "serve", "reusePort": "true", "startEmpty": "true"}
	}
	return kong.Vars{"onBadStart": "exit", "reusePort": "false", "startEmpty": "false"}
}

// ratelimitProgram is the name under which the program is a drop-in replacement of
// envoyproxy/ratelimit.
const ratelimitProgram = "ratelimit"

// serveGroups are the headings of the help of serve.
var serveGroups = []kong.Group{
	{Key: "rules", Title: "Rules:"},
	{Key: "xds", Title: "Rules from a management server (xDS):"},
	{Key: "listeners", Title: "Listeners (an empty address disables one, port 0 selects a free port):"},
	{Key: "tls", Title: "TLS of the rate limit service (files are reloaded when they change):"},
	{Key: "debug", Title: "Remote access to the debug listener (files are reloaded when they change):"},
	{Key: "decisions", Title: "Decisions:"},
	{Key: "store", Title: "Shared store:"},
	{Key: "replies", Title: "Responses:"},
	{Key: "bounds", Title: "Resource limits:"},
	{Key: "state", Title: "State file:"},
	{Key: "statsd", Title: "StatsD:"},
	{Key: "tracing", Title: "Tracing:"},
	{Key: "process", Title: "Process:"},
}
