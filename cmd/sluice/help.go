package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// commonFlags are the flags of serve that its help shows without --help-all.
var commonFlags = []string{
	"config", "defaults", "table", "xds-addr", "shadow-mode", "all-or-nothing",
	"grpc-addr", "http-addr", "debug-addr", "metrics-addr", "ratelimit-headers", "retry-after-header", "denied-response",
	"store", "store-fallback", "grpc-tls-cert", "grpc-tls-key", "grpc-client-ca",
	"counter-memory", "state-file", "statsd-addr", "tracing", "log-level", "log-format",
}

// mergedGroups are the groups of flags that the short help adds to another group.
var mergedGroups = map[string]string{
	"xds": "rules", "bounds": "process", "state": "process", "statsd": "process", "tracing": "process",
}

// helpAllFlag prints the help of serve with all flags.
type helpAllFlag bool

// BeforeReset implements a hook of Kong.
func (helpAllFlag) BeforeReset(ctx *kong.Context) error {
	err := ctx.PrintUsage(false)
	ctx.Exit(0)
	return err
}

// printHelp prints the help of a command. Without --help-all, that of serve is short.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	command := ctx.Selected()
	all := slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == "help-all" })
	if command != nil && command.Name == "serve" && !all {
		shortenHelp(command, ctx.Model.Flags)
	}
	return kong.DefaultHelpPrinter(options, ctx)
}

// shortenHelp reduces the help of common flags to the first clause and the default, and hides other
// flags.
func shortenHelp(command *kong.Node, more []*kong.Flag) {
	command.Detail += "\nsluice serve --help-all describes all flags"
	for _, flag := range slices.Concat(command.Flags, more) {
		flag.Hidden = !slices.Contains(commonFlags, flag.Name)
		flag.Help, _, _ = strings.Cut(flag.Help, ". ")
		flag.Help, _, _ = strings.Cut(flag.Help, ": ")
		flag.Help, _, _ = strings.Cut(flag.Help, " ($")
		flag.Help = strings.TrimSuffix(flag.Help, ".")
		if flag.Default != "" && !flag.IsBool() {
			flag.Help += " (" + flag.Default + ")"
		}
		if flag.Group == nil {
			continue
		}
		key := flag.Group.Key
		if into, ok := mergedGroups[key]; ok {
			key = into
		}
		i := slices.IndexFunc(serveGroups, func(g kong.Group) bool { return g.Key == key })
		title, _, _ := strings.Cut(strings.TrimSuffix(serveGroups[i].Title, ":"), " (")
		flag.Group = &kong.Group{Key: key, Title: title + ":"}
	}
}
