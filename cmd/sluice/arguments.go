package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"
)

// ignoredArguments are arguments without effect; see splitArguments.
type ignoredArguments []string

func (a ignoredArguments) log(logger *zap.Logger) {
	if len(a) > 0 {
		logger.Warn("ignoring unknown arguments, as envoyproxy/ratelimit does", zap.Strings("arguments", a))
	}
}

// splitArguments splits args into those that serve knows and the others. envoyproxy/ratelimit reads
// no arguments, so its manifests may contain any. If args name another command, all of them are
// known.
func splitArguments(model *kong.Application, args []string) (known []string, ignored ignoredArguments) {
	if len(args) == 0 {
		return nil, nil
	}
	isCommand := slices.ContainsFunc(model.Children, func(n *kong.Node) bool { return n.Name == args[0] })
	if isCommand && args[0] != "serve" {
		return args, nil
	}
	flags := slices.Clone(model.Flags)
	for _, command := range model.Children {
		if command.Name == "serve" {
			flags = append(flags, command.Flags...)
		}
	}
	for i := 0; i < len(args); i++ {
		name, _, hasValue := strings.Cut(args[i], "=")
		at := slices.IndexFunc(flags, func(f *kong.Flag) bool {
			return name == "--"+f.Name || f.Tag.Negatable != "" && name == "--no-"+f.Name ||
				f.Short != 0 && name == "-"+string(f.Short)
		})
		switch {
		case i == 0 && args[i] == "serve":
			known = append(known, args[i])
		case at < 0:
			ignored = append(ignored, args[i])
		case hasValue || flags[at].IsBool() || i+1 == len(args):
			known = append(known, args[i])
		default:
			known = append(known, args[i], args[i+1])
			i++
		}
	}
	return known, ignored
}
