package main

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// environment is what the variables of envoyproxy/ratelimit say to a command:
// values of flags, for those that the command line does not give.
//
// A variable that is set to nothing counts as unset, as manifests often leave
// them; envoyproxy/ratelimit does not start with an empty number or boolean.
type environment struct {
	// all is the whole environment, by name.
	all map[string]string
	// set is the values of those that are set and of the right kind.
	set map[string]string
	// given are the flags of the command line.
	given map[string]bool
	// assigned is what the variables make of flags, by flag.
	assigned map[string]assignment
	// unused is why a variable that is set has no effect, by name.
	unused map[string]string
	// otel are the names of those that OpenTelemetry reads.
	otel []string
	// problems are all that keeps the command from running.
	problems []error
}

// assignment is the value of a flag and the variables that it comes from.
type assignment struct {
	value any // a string, or a []any of strings
	from  []string
}

var _ kong.Resolver = (*environment)(nil)

// readEnvironment reads, of an environment as that of [os.Environ], the variables
// that set one of flags; nil means all variables.
func readEnvironment(environ, flags []string, given map[string]bool) *environment {
	e := &environment{
		all: map[string]string{}, set: map[string]string{}, given: given,
		assigned: map[string]assignment{}, unused: map[string]string{},
	}
	for _, item := range environ {
		name, text, _ := strings.Cut(item, "=")
		e.all[name] = text
	}
	for v := range variables() {
		if flags != nil && !slices.Contains(flags, v.flag) {
			continue
		}
		e.read(v)
	}
	return e
}

// read takes the value of a variable if it is set, and good.
func (e *environment) read(v *variable) {
	text := e.all[v.name]
	if text == "" {
		return
	}
	if err := v.check(text); err != nil {
		e.problems = append(e.problems, err)
		return
	}
	e.set[v.name] = text
}

// BeforeResolve has the environment stand in for the flags that are not given.
func (s *serveCmd) BeforeResolve(ctx *kong.Context) error {
	s.environment = readEnvironment(os.Environ(), nil, givenFlags(ctx))
	return s.environment.resolve(ctx)
}

// ruleFlags are the flags that check and explain share with serve.
var ruleFlags = []string{"merge-domains", "all-or-nothing"}

// BeforeResolve does the same for the flags that are serve's too.
func (*checkCmd) BeforeResolve(ctx *kong.Context) error {
	return readEnvironment(os.Environ(), ruleFlags, givenFlags(ctx)).resolve(ctx)
}

// BeforeResolve does the same for the flags that are serve's too.
func (*explainCmd) BeforeResolve(ctx *kong.Context) error {
	return readEnvironment(os.Environ(), ruleFlags, givenFlags(ctx)).resolve(ctx)
}

func givenFlags(ctx *kong.Context) map[string]bool {
	given := map[string]bool{}
	for _, path := range ctx.Path {
		if path.Flag != nil {
			given[path.Flag.Name] = true
		}
	}
	return given
}

func (e *environment) resolve(ctx *kong.Context) error {
	e.assign()
	if len(e.problems) > 0 {
		return errors.Join(e.problems...)
	}
	ctx.AddResolver(e)
	return nil
}

// assign works out what the variables mean.
func (e *environment) assign() {
	e.assignStore()
	e.assignListeners()
	e.assignTLS()
	e.assignSource()
	e.assignStats()
	e.assignMapper()
	e.assignTracing()
	if e.on("FORCE_START_WITHOUT_INITIAL_CONFIG") {
		e.to("on-bad-start", "serve", "FORCE_START_WITHOUT_INITIAL_CONFIG")
	}
	if format, ok := e.set["LOG_FORMAT"]; ok {
		if !strings.EqualFold(format, "json") {
			format = "text"
		}
		e.to("log-format", format, "LOG_FORMAT")
	}
	for v := range variables() {
		text, ok := e.set[v.name]
		switch {
		case !ok || v.joined:
		case v.status == accepted && text != v.preset:
			e.without(v.note, v.name)
		case v.status == supported && v.flag != "" && e.unused[v.name] == "":
			e.to(v.flag, text, v.name)
		}
	}
}

// to sets a flag from those of the variables that are set.
func (e *environment) to(flag string, value any, from ...string) {
	from = slices.DeleteFunc(slices.Clone(from), func(name string) bool { return e.set[name] == "" })
	e.assigned[flag] = assignment{value, from}
}

// without says why those of names that are set have no effect.
func (e *environment) without(why string, names ...string) {
	for _, name := range names {
		if _, ok := e.set[name]; ok {
			e.unused[name] = why
		}
	}
}

func (e *environment) fail(format string, args ...any) {
	e.problems = append(e.problems, fmt.Errorf(format, args...))
}

// on reports whether a boolean is set and true, off whether it is set and false.
func (e *environment) on(name string) bool  { return e.is(name, true) }
func (e *environment) off(name string) bool { return e.is(name, false) }

func (e *environment) is(name string, want bool) bool {
	on, err := strconv.ParseBool(e.set[name])
	return err == nil && on == want
}

// unasked returns which of the flags of addresses have their default, because neither
// the command line nor a variable sets them: by listener, what would move it.
func (e *environment) unasked(flags ...string) map[string]string {
	unasked := map[string]string{}
	for _, flag := range flags {
		if _, assigned := e.assigned[flag]; !assigned && !e.given[flag] {
			listener := strings.TrimSuffix(flag, "-addr")
			unasked[listener] = "--" + flag + ", or the variables " + strings.Join(variablesOf(flag), ", ")
		}
	}
	return unasked
}

// any reports whether one of names is set.
func (e *environment) any(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return e.set[name] != "" })
}

// or returns the value of a variable, or another.
func (e *environment) or(name, other string) string {
	if text, ok := e.set[name]; ok {
		return text
	}
	return other
}

// Validate has nothing to do; see [kong.Resolver].
func (*environment) Validate(*kong.Application) error { return nil }

// Resolve returns the value of a flag that the command line does not give.
func (e *environment) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	a, ok := e.assigned[flag.Name]
	if !ok {
		return nil, nil //nolint:nilnil // how a resolver says that it knows nothing
	}
	// What the flag's own type refuses is reported by the variable's name.
	scratch := reflect.New(flag.Target.Type()).Elem()
	if err := flag.Parse(kong.Scan().PushTyped(a.value, kong.FlagValueToken), scratch); err != nil {
		var said []string
		for _, name := range a.from {
			said = append(said, name+"="+lookUp(name).show(e.set[name]))
		}
		// Both kong and its caller put the flag before what is wrong.
		what := kongList.ReplaceAllString(strings.TrimPrefix(err.Error(), flag.ShortSummary()+": "), "")
		return nil, fmt.Errorf("%s: %s", strings.Join(said, ", "), what)
	}
	return a.value, nil
}

// kongList is what kong puts before what is wrong with an element of a list.
var kongList = regexp.MustCompile(`^\[\]interface \{\}\{.*\} -> \*\[\][\w.]+: `)

// variables returns all variables.
func variables() iter.Seq[*variable] {
	return func(yield func(*variable) bool) {
		for i := range sections {
			for j := range sections[i].variables {
				if !yield(&sections[i].variables[j]) {
					return
				}
			}
		}
	}
}

// variablesOf returns the names of the variables that set a flag.
func variablesOf(flag string) (names []string) {
	for v := range variables() {
		if v.flag == flag {
			names = append(names, v.name)
		}
	}
	return names
}

// lookUp returns the variable of that name.
func lookUp(name string) *variable {
	for v := range variables() {
		if v.name == name {
			return v
		}
	}
	return &variable{name: name}
}
