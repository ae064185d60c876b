// Command sluice is a rate limit service for Envoy. See sluice --help.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // for images without a time zone database; that of the system takes precedence

	"github.com/alecthomas/kong"
)

// cli is the command line. Kong calls the Run method of the selected command.
type cli struct {
	Serve    serveCmd    `cmd:"" default:"withargs" help:"Run the rate limit service (default command)."`
	Check    checkCmd    `cmd:"" help:"Validate rule files and print all errors and warnings."`
	Explain  explainCmd  `cmd:"" help:"Explain which rule a descriptor matches, step by step."`
	Envoy    envoyCmd    `cmd:"" help:"Check or generate the configuration of Envoy."`
	Simulate simulateCmd `cmd:"" help:"Replay access logs against rules and report the decisions."`
	Top      topCmd      `cmd:"" help:"Show the most denied keys and the busiest limits of a running service."`
	Reset    resetCmd    `cmd:"" help:"Reset the counters of a descriptor or of denied keys, after confirmation."`
	Table    tableCmd    `cmd:"" help:"Show and change the tables of a running service."`
	Call     callCmd     `cmd:"" help:"Send requests to a rate limit service."`
	Schema   schemaCmd   `cmd:"" help:"Print the JSON Schema of rule files."`
	Version  versionCmd  `cmd:"" help:"Print the version."`

	Completion completionCmd `cmd:"" help:"Print a shell completion script for bash, zsh or fish."`
	Man        manCmd        `cmd:"" hidden:"" help:"Print the manual page."`

	PrintVersion kong.VersionFlag `name:"version" help:"Print the version."`
}

func main() {
	os.Exit(run(context.Background(), os.Args, console{os.Stdin, os.Stdout, os.Stderr}))
}

// run runs the command line args and returns the exit code: 0 for success, 1 for failure, 2 for a
// wrong command line.
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
	var ignored ignoredArguments
	given := rewriteHelpCommand(args[1:])
	if name == ratelimitProgram {
		given, ignored = splitArguments(parser.Model, given)
	}
	command, err := parser.Parse(given)
	if exit >= 0 && printed.err == nil { // --help or --version has printed its text
		return exit
	}
	if err := cmp.Or(err, printed.err); err != nil {
		fmt.Fprintf(c.err, "%s: %v\nRun %s --help for usage.\n", name, err, commandName(args, name, err))
		return 2
	}
	err = command.Run(ignored)
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

// envoyCmd groups the commands about the configuration of Envoy.
type envoyCmd struct {
	Check   envoyCheckCmd   `cmd:"" help:"Check the configuration of Envoy against the rules."`
	Snippet envoySnippetCmd `cmd:"" help:"Print the configuration of Envoy that the rules need."`
}
