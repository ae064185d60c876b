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

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Environment has the values of flags that environment variables set. It is a resolver of Kong.
type Environment struct {
	// environ is the complete environment, by name.
	environ map[string]string
	// set has the values of the known variables that are set and valid, by name.
	set map[string]string
	// given are the flags of the command line.
	given map[string]bool
	// assigned has the values of flags, by flag.
	assigned map[string]assignment
	// unused has the reasons why variables that are set have no effect, by name.
	unused map[string]string
	// tolerated are warnings about invalid values with which sluice starts nevertheless, as
	// envoyproxy/ratelimit does.
	tolerated []string
	// otel are the names of the variables that OpenTelemetry reads.
	otel []string
	// problems are the errors that prevent the start.
	problems []error
}

// assignment is the value of a flag and the names of the variables that it comes from.
type assignment struct {
	value any // a string, or a []any of strings
	from  []string
}

var _ kong.Resolver = (*Environment)(nil)

// Resolve adds the environment of the process as a source of flags that the command line does not
// set. If flags is not nil, it is limited to these flags.
func Resolve(ctx *kong.Context, flags []string) (*Environment, error) {
	given := map[string]bool{}
	var statsd telemetry.StatsdOptions
	for _, path := range ctx.Path {
		if path.Flag == nil {
			continue
		}
		given[path.Flag.Name] = true
		if path.Flag.Name == "statsd-addr" {
			statsd.Addr, _ = ctx.FlagValue(path.Flag).(string)
			_ = statsd.ParseAddr() // serve reports the error
		}
	}
	e, err := Read(os.Environ(), flags, given)
	if given["statsd-addr"] && !statsd.Dog {
		e.markUnused("--statsd-addr does not name a DogStatsD server", e.assigned["dogstatsd-mogrifier"].from...)
		delete(e.assigned, "dogstatsd-mogrifier")
	}
	if err == nil {
		ctx.AddResolver(e)
	}
	return e, err
}

// Read reads an environment in the format of [os.Environ]. If flags is not nil, it reads only the
// variables that set one of these flags. Given are the flags that the command line sets. The error
// joins the errors of all invalid variables.
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

// readVariable records the value of a variable if it is set and valid.
func (e *Environment) readVariable(v *Variable) {
	text := e.environ[v.Name]
	if text == "" || v.has(neverRead) && strings.Contains(text, "://") { // Kubernetes sets REDIS_PORT to a URL for a Service named redis
		return
	}
	if err := v.check(text); err != nil {
		e.problems = append(e.problems, err)
		return
	}
	if v.kind == aBool {
		on, _ := strconv.ParseBool(text) // check has parsed it
		text = strconv.FormatBool(on)    // flags accept fewer spellings
	}
	e.set[v.Name] = text
}

func (e *Environment) assign() {
	e.assignStore()
	e.assignListeners()
	e.assignSource()
	e.assignStats()
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

// setFlag sets a flag. It records which of the variables in from are set as its origin.
func (e *Environment) setFlag(flag string, value any, from ...string) {
	from = slices.DeleteFunc(slices.Clone(from), func(name string) bool { return e.set[name] == "" })
	e.assigned[flag] = assignment{value, from}
}

// markUnused records the reason why those of the named variables that are set have no effect. The
// first reason counts.
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

// isTrue reports whether a boolean is set and true, isFalse whether it is set and false.
func (e *Environment) isTrue(name string) bool  { return e.set[name] == "true" }
func (e *Environment) isFalse(name string) bool { return e.set[name] == "false" }

// OptionalListeners returns the HTTP listeners without which the process starts if their port is in
// use: those at their default addresses and, as in envoyproxy/ratelimit, those of debug and metrics
// whose address a variable sets. It returns a map from the name of the listener to a text with the
// flag and the variables that change its address.
func (e *Environment) OptionalListeners() map[string]string {
	listeners := map[string]string{}
	for _, name := range []string{"http", "debug", "metrics"} {
		flag := name + "-addr"
		if _, assigned := e.assigned[flag]; !e.given[flag] && (!assigned || name != "http") {
			listeners[name] = "--" + flag + ", or the variables " + strings.Join(Of(flag), ", ")
		}
	}
	return listeners
}

// Given reports whether the command line sets a flag.
func (e *Environment) Given(flag string) bool { return e.given[flag] }

func (e *Environment) anySet(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return e.set[name] != "" })
}

// valueOr returns the value of a variable, or fallback if it is not set.
func (e *Environment) valueOr(name, fallback string) string {
	if text, ok := e.set[name]; ok {
		return text
	}
	return fallback
}

// Validate implements [kong.Resolver]: it returns the errors of values that flags rejected.
func (e *Environment) Validate(*kong.Application) error { return errors.Join(e.problems...) }

// Resolve implements [kong.Resolver]: it returns the value of a flag that the command line does not
// give.
func (e *Environment) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	a, ok := e.assigned[flag.Name]
	if !ok {
		return nil, nil
	}
	// Parse the value here, so that an error names the variable and not the flag.
	scratch := reflect.New(flag.Target.Type()).Elem()
	if err := flag.Parse(kong.Scan().PushTyped(a.value, kong.FlagValueToken), scratch); err != nil {
		var settings []string
		for _, name := range a.from {
			settings = append(settings, name+"="+lookup(name).display(e.set[name]))
		}
		// The error of Kong starts with the flag.
		problem := kongListPrefix.ReplaceAllString(strings.TrimPrefix(err.Error(), flag.ShortSummary()+": "), "")
		if slices.ContainsFunc(a.from, func(name string) bool { return lookup(name).has(lenient) }) {
			delete(e.assigned, flag.Name)
			text := strings.Join(settings, ", ") + ": "
			if !slices.ContainsFunc(e.tolerated, func(other string) bool { return strings.HasPrefix(other, text) }) { // once
				e.tolerated = append(e.tolerated, text+problem+". Using the default")
			}
		} else { // not returned, since Kong would add the flag
			e.addProblem("%s: %s", strings.Join(settings, ", "), problem)
		}
		return nil, nil
	}
	return a.value, nil
}

// kongListPrefix matches the prefix that Kong adds to the error of a list element.
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
