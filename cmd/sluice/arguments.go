package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"
)

// ignoredArguments are those that were left out; see knownArguments.
type ignoredArguments []string

func (d ignoredArguments) log(logger *zap.Logger) {
	if len(d) > 0 {
		logger.Warn("arguments without effect: envoyproxy/ratelimit has none either", zap.Strings("arguments", d))
	}
}

// splitArguments parts args into those that serve knows and the others.
// envoyproxy/ratelimit reads no arguments, so its manifests may have any. If args name
// a command, all are known.
func splitArguments(model *kong.Application, args []string) (known []string, dropped ignoredArguments) {
	if len(args) == 0 {
		return nil, nil
	}
	is := func(n *kong.Node) bool { return n.Name == args[0] }
	if i := slices.IndexFunc(model.Children, is); i >= 0 && args[0] != "serve" {
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
			return name == "--"+f.Name || f.Tag.Negatable != "" && name == "--no-"+f.Name || f.Short != 0 && name == "-"+string(f.Short)
		})
		switch {
		case i == 0 && args[i] == "serve":
			known = append(known, args[i])
		case at < 0:
			dropped = append(dropped, args[i])
		case hasValue || flags[at].IsBool() || i+1 == len(args):
			known = append(known, args[i])
		default:
			known = append(known, args[i], args[i+1])
			i++
		}
	}
	return known, dropped
}
