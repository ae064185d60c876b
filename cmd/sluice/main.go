// Command sluice is a rate-limit service for Envoy that decides in its own
// memory. See sluice --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/environment"
)

// cli is the command line. Each command has a Run method that Kong calls.
type cli struct {
	Serve   serveCmd   `cmd:"" default:"withargs" help:"Answer rate-limit requests (the default command)."`
	Check   checkCmd   `cmd:"" help:"Check rule files and print every error and warning."`
	Explain explainCmd `cmd:"" help:"Show which rule a descriptor matches, step by step."`
	Call    callCmd    `cmd:"" help:"Ask a running service, this one or any other of the same protocol."`
	Schema  schemaCmd  `cmd:"" help:"Print the JSON Schema of rule files, for editors."`
	Version versionCmd `cmd:"" help:"Print the version."`

	PrintVersion printVersion `name:"version" help:"Print the version."`
}

// console is where commands read and print.
type console struct {
	in       io.Reader
	out, err io.Writer
}

// asRatelimit is the name under which the program stands in for
// envoyproxy/ratelimit.
const asRatelimit = "ratelimit"

// errFailed is returned by a command that has printed why.
var errFailed = errors.New("failed")

func main() {
	os.Exit(run(context.Background(), os.Args, console{os.Stdin, os.Stdout, os.Stderr}))
}

// untilSignal returns a context that ends at the first signal to end. A second one ends
// the process at once, as the first one does for commands that do not call this. Stop
// ends the context too.
func untilSignal(ctx context.Context) (until context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals) // before anything is done
		cancel()
	}()
	return ctx, cancel
}

// run runs the command that args name. It returns the exit code: 0 for success, 1 for
// failure, 2 for a wrong command line.
func run(ctx context.Context, args []string, c console) int {
	name := filepath.Base(args[0])
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
	var dropped droppedArguments
	given := helpFlag(args[1:])
	if name == asRatelimit {
		given, dropped = knownArguments(parser.Model, given)
	}
	command, err := parser.Parse(given)
	if exit >= 0 { // --help has printed
		return exit
	}
	if err != nil {
		fmt.Fprintf(c.err, "%s: %v\n%sRun %s --help for what is accepted.\n", name, err, hint(err), invoked(args, name, err))
		return 2
	}
	switch err := command.Run(dropped); {
	case errors.Is(err, errFailed):
		return 1
	case err != nil:
		fmt.Fprintf(c.err, "%s: %v\n", name, err)
		return 1
	default:
		return 0
	}
}

// helpFlag puts --help at the end of what follows a help command.
func helpFlag(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// hint returns a line that says how to name rules, if serve got them as an argument.
func hint(err error) string {
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && strings.HasPrefix(err.Error(), "unexpected argument ") {
		if command := parse.Context.Selected(); command == nil || command.Name == "serve" {
			return "serve names its rules with --config PATH.\n"
		}
	}
	return ""
}

// newParser returns a parser of the command line and the environment into root.
func newParser(root *cli, name string, c console, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(root, append(options,
		kong.Name(name),
		kong.Description("A rate-limit service for Envoy that decides in its own memory."),
		kong.Writers(c.out, c.err),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		defaultsUnder(name),
		kong.ExplicitGroups(serveGroups),
		kong.KindMapper(reflect.Bool, boolean{}),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(duration)),
		kong.PostBuild(nameVariables),
	)...)
}

// ruleFlags are the flags that check and explain share with serve.
var ruleFlags = []string{"merge-domains", "all-or-nothing"}

// nameVariables adds to the help of each flag the variables that set it.
func nameVariables(k *kong.Kong) error {
	for _, command := range k.Model.Children {
		for _, flag := range command.Flags {
			names := environment.Of(flag.Name)
			if command.Name != "serve" && !slices.Contains(ruleFlags, flag.Name) {
				continue
			}
			if len(names) > 0 {
				flag.Help = strings.TrimSuffix(flag.Help, ".") + " ($" + strings.Join(names, ", $") + ")."
			}
		}
	}
	return nil
}

// invoked returns the program's name with the command that err is about.
func invoked(args []string, name string, err error) string {
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		return name
	}
	// The default command is selected although nobody named it.
	if command := parse.Context.Selected(); command != nil && slices.Contains(args[1:], command.Name) {
		return name + " " + command.Name
	}
	return name
}

// defaultsUnder are the defaults that follow from the program's name: under that of
// envoyproxy/ratelimit they are what that does.
func defaultsUnder(name string) kong.Vars {
	if name == asRatelimit {
		return kong.Vars{"onBadStart": "serve", "reusePort": "true", "startEmpty": "true"}
	}
	return kong.Vars{"onBadStart": "exit", "reusePort": "false", "startEmpty": "false"}
}
