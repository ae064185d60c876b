// Command sluice is a rate-limit service for Envoy that decides in its own
// memory. See sluice --help.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // zones for images without any; newer ones of the machine come before them

	"github.com/alecthomas/kong"
)

// cli is the command line. Each command has a Run method that Kong calls.
type cli struct {
	Serve    serveCmd    `cmd:"" default:"withargs" help:"Answer rate-limit requests (the default command)."`
	Check    checkCmd    `cmd:"" help:"Check rule files and print every error and warning."`
	Explain  explainCmd  `cmd:"" help:"Show which rule a descriptor matches, step by step."`
	Envoy    envoyCmd    `cmd:"" help:"Look at the other half of the configuration: what Envoy asks."`
	Simulate simulateCmd `cmd:"" help:"Say what rules would do to recorded traffic."`
	Top      topCmd      `cmd:"" help:"Show what a running sluice limits now: which keys are denied most."`
	Reset    resetCmd    `cmd:"" help:"Reset counters of keys that are denied, after saying which."`
	Table    tableCmd    `cmd:"" help:"Show and change numbers of limits by key, in the tables of a running sluice."`
	Call     callCmd     `cmd:"" help:"Ask a running service, this one or any other of the same protocol."`
	Schema   schemaCmd   `cmd:"" help:"Print the JSON Schema of rule files, for editors."`
	Version  versionCmd  `cmd:"" help:"Print the version."`

	Completion completionCmd `cmd:"" help:"Print what lets bash, zsh or fish complete the command line."`
	Man        manCmd        `cmd:"" hidden:"" help:"Print the manual page."`

	PrintVersion kong.VersionFlag `name:"version" help:"Print the version."`
}

func main() {
	os.Exit(run(context.Background(), os.Args, console{os.Stdin, os.Stdout, os.Stderr}))
}

// run runs the command that args name. It returns the exit code: 0 for success, 1 for
// failure, 2 for a wrong command line.
func run(ctx context.Context, args []string, c console) int {
	name := filepath.Base(args[0])
	ctx, end := context.WithCancel(ctx)
	defer end()
	printed := &output{to: c.out, cancel: end}
	c.out = printed
	exit := -1
	parser, err := newParser(new(cli), name, c,
		kong.Exit(func(code int) { exit = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(c),
	)
	if err != nil {
		fmt.Fprintf(c.err, "%s: %v\n", name, err)
		return 2
	}
	var dropped ignoredArguments
	given := rewriteHelpCommand(args[1:])
	if name == ratelimitProgram {
		given, dropped = splitArguments(parser.Model, given)
	}
	command, err := parser.Parse(given)
	if exit >= 0 && printed.err == nil { // --help has printed
		return exit
	}
	if err := cmp.Or(err, printed.err); err != nil {
		fmt.Fprintf(c.err, "%s: %v\n%sRun %s --help for what is accepted.\n", name, err, suggestion(err), commandName(args, name, err))
		return 2
	}
	err = command.Run(dropped)
	switch err := cmp.Or(printed.err, err); {
	case errors.Is(err, errFailed):
		return 1
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(c.err, "%s: interrupted\n", name)
		return 1
	case err != nil:
		fmt.Fprintf(c.err, "%s: %v\n", name, err)
		return 1
	default:
		return 0
	}
}

// envoyCmd has the commands about the configuration of Envoy.
type envoyCmd struct {
	Check   envoyCheckCmd   `cmd:"" help:"Check Envoy's configuration against the rules: will Envoy ask, and will a rule match?"`
	Snippet envoySnippetCmd `cmd:"" help:"Print configuration of Envoy that asks for what the rules need."`
}
