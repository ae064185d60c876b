package environment

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

// Environment is what the variables say to a command: values of flags, for those that
// the command line does not give. It is a resolver of Kong.
type Environment struct {
	// environ is the whole environment, by name.
	environ map[string]string
	// set is the values of those that are set and of the right kind.
	set map[string]string
	// given are the flags of the command line.
	given map[string]bool
	// assigned is what the variables make of flags, by flag.
	assigned map[string]assignment
	// unused is why a variable that is set has no effect, by name.
	unused map[string]string
	// tolerated are warnings of bad values that end neither the start of
	// envoyproxy/ratelimit nor that of sluice.
	tolerated []string
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

var _ kong.Resolver = (*Environment)(nil)

// Resolve has the process's environment set the flags that the command line does not
// give: those of flags only, unless that is nil.
func Resolve(ctx *kong.Context, flags []string) (*Environment, error) {
	given := map[string]bool{}
	for _, path := range ctx.Path {
		if path.Flag != nil {
			given[path.Flag.Name] = true
		}
	}
	e, err := Read(os.Environ(), flags, given)
	if err == nil {
		ctx.AddResolver(e)
	}
	return e, err
}

// Read reads an environment such as that of [os.Environ] for the variables that set
// one of flags, or all variables if flags is nil. Given are the flags of the command
// line. The error joins one for each variable whose value is wrong.
func Read(environ, flags []string, given map[string]bool) (*Environment, error) {
	e := &Environment{
		environ: map[string]string{}, set: map[string]string{}, given: given,
		assigned: map[string]assignment{}, unused: map[string]string{},
	}
	for _, item := range environ {
		name, text, _ := strings.Cut(item, "=")
		e.environ[name] = text
	}
	for v := range All() {
		if flags == nil || slices.Contains(flags, v.Flag) {
			e.readVariable(v)
		}
	}
	e.assign()
	return e, errors.Join(e.problems...)
}

// readVariable takes the value of a variable if it is set, and good.
func (e *Environment) readVariable(v *Variable) {
	text := e.environ[v.Name]
	if text == "" || v.has(neverRead) && strings.Contains(text, "://") { // Kubernetes sets REDIS_PORT for a Service of that name
		return
	}
	if err := v.check(text); err != nil {
		e.problems = append(e.problems, err)
		return
	}
	e.set[v.Name] = text
}

// assign works out what the variables mean.
func (e *Environment) assign() {
	e.assignStore()
	e.assignListeners()
	e.assignSource()
	e.assignStats()
	e.assignMapper()
	e.assignTracing()
	for v := range All() {
		if on := v.requiredSwitch(); on != "" && !e.isTrue(on) && !e.given[lookup(on).Flag] {
			e.markUnused(on+" is not true", v.Name)
		}
	}
	e.assignTLS()
	if e.isTrue("FORCE_START_WITHOUT_INITIAL_CONFIG") {
		e.setFlag("on-bad-start", "serve", "FORCE_START_WITHOUT_INITIAL_CONFIG")
	}
	if format, ok := e.set["LOG_FORMAT"]; ok {
		if !strings.EqualFold(format, "json") {
			format = "text"
		}
		e.setFlag("log-format", format, "LOG_FORMAT")
	}
	for v := range All() {
		text, ok := e.set[v.Name]
		switch {
		case !ok || v.has(computed):
		case v.has(accepted) && text != v.preset:
			e.markUnused(v.note, v.Name)
		case v.Supported() && v.Flag != "" && e.unused[v.Name] == "":
			e.setFlag(v.Flag, text, v.Name)
		}
	}
}

// setFlag sets a flag, and notes those of the variables in from that are set.
func (e *Environment) setFlag(flag string, value any, from ...string) {
	from = slices.DeleteFunc(slices.Clone(from), func(name string) bool { return e.set[name] == "" })
	e.assigned[flag] = assignment{value, from}
}

// markUnused notes why the variables of names have no effect, for those that are set. The first reason
// holds.
func (e *Environment) markUnused(why string, names ...string) {
	for _, name := range names {
		if _, ok := e.set[name]; ok && e.unused[name] == "" {
			e.unused[name] = why
		}
	}
}

func (e *Environment) addProblem(format string, args ...any) {
	e.problems = append(e.problems, fmt.Errorf(format, args...))
}

// isTrue reports whether a boolean is set and true, off whether it is set and false.
func (e *Environment) isTrue(name string) bool  { return e.isBool(name, true) }
func (e *Environment) isFalse(name string) bool { return e.isBool(name, false) }

func (e *Environment) isBool(name string, want bool) bool {
	on, err := strconv.ParseBool(e.set[name])
	return err == nil && on == want
}

// DefaultAddrs returns which of the flags of addresses have their default, because neither
// the command line nor a variable sets them: by listener, what would move it.
func (e *Environment) DefaultAddrs(flags ...string) map[string]string {
	unasked := map[string]string{}
	for _, flag := range flags {
		if _, assigned := e.assigned[flag]; !assigned && !e.given[flag] {
			listener := strings.TrimSuffix(flag, "-addr")
			unasked[listener] = "--" + flag + ", or the variables " + strings.Join(Of(flag), ", ")
		}
	}
	return unasked
}

// Given reports whether the command line gives a flag.
func (e *Environment) Given(flag string) bool { return e.given[flag] }

// anySet reports whether one of names is set.
func (e *Environment) anySet(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return e.set[name] != "" })
}

// valueOr returns the value of a variable, or another.
func (e *Environment) valueOr(name, other string) string {
	if text, ok := e.set[name]; ok {
		return text
	}
	return other
}

// Validate has nothing to do; see [kong.Resolver].
func (*Environment) Validate(*kong.Application) error { return nil }

// Resolve implements [kong.Resolver]: it returns the value of a flag that the command line does not give.
func (e *Environment) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	a, ok := e.assigned[flag.Name]
	if !ok {
		return nil, nil
	}
	// What the flag's own type rejects is reported by the variable's name.
	scratch := reflect.New(flag.Target.Type()).Elem()
	if err := flag.Parse(kong.Scan().PushTyped(a.value, kong.FlagValueToken), scratch); err != nil {
		var said []string
		for _, name := range a.from {
			said = append(said, name+"="+lookup(name).display(e.set[name]))
		}
		// Both kong and its caller put the flag before what is wrong.
		what := kongListPrefix.ReplaceAllString(strings.TrimPrefix(err.Error(), flag.ShortSummary()+": "), "")
		if slices.ContainsFunc(a.from, func(name string) bool { return lookup(name).has(lenient) }) {
			delete(e.assigned, flag.Name)
			e.tolerated = append(e.tolerated, fmt.Sprintf("%s: %s. The default of --%s holds", strings.Join(said, ", "), what, flag.Name))
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %s", strings.Join(said, ", "), what)
	}
	return a.value, nil
}

// kongListPrefix is what kong puts before what is wrong with an element of a list.
var kongListPrefix = regexp.MustCompile(`^\[\]interface \{\}\{.*\} -> \*\[\][\w.]+: `)

// All returns all variables.
func All() iter.Seq[*Variable] {
	return func(yield func(*Variable) bool) {
		for i := range sections {
			for j := range sections[i].variables {
				if !yield(&sections[i].variables[j]) {
					return
				}
			}
		}
	}
}

// Of returns the names of the variables that set a flag.
func Of(flag string) (names []string) {
	for v := range All() {
		if v.Flag == flag {
			names = append(names, v.Name)
		}
	}
	return names
}

func lookup(name string) *Variable {
	for v := range All() {
		if v.Name == name {
			return v
		}
	}
	return &Variable{Name: name}
}
