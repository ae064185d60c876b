package environment

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// Report logs the effects of the variables: a line at info for each section, with the flags that
// each variable sets, and a line at warn for each reason why variables have no effect.
func (e *Environment) Report(logger *zap.Logger) {
	for _, s := range sections {
		var fields []zap.Field
		for i := range s.variables {
			if effect := e.effect(&s.variables[i]); effect != "" {
				fields = append(fields, zap.String(s.variables[i].Name, effect))
			}
		}
		if len(fields) > 0 {
			logger.Info("environment: "+strings.ToLower(s.title[:1])+s.title[1:], fields...)
		}
	}
	if len(e.otel) > 0 {
		logger.Info("environment: read by OpenTelemetry", zap.Strings("variables", e.otel))
	}
	for _, why := range e.tolerated {
		logger.Warn("environment: " + why)
	}
	var reasons []string
	names := map[string][]string{}
	for v := range All() {
		if why, ok := e.unused[v.Name]; ok {
			if names[why] == nil {
				reasons = append(reasons, why)
			}
			names[why] = append(names[why], v.Name)
		}
	}
	for _, why := range reasons {
		logger.Warn("environment: no effect: "+why, zap.Strings("variables", names[why]))
	}
}

// effect describes the effect of a variable, "" if it has none.
func (e *Environment) effect(v *Variable) string {
	text, ok := e.set[v.Name]
	if _, unused := e.unused[v.Name]; !ok || unused {
		return ""
	}
	var all []string
	for flag, a := range e.assigned {
		// If lookup finds it, it is the name of a variable without a flag.
		if !slices.Contains(a.from, v.Name) || lookup(flag).kind != "" {
			continue
		}
		secret := slices.ContainsFunc(a.from, func(name string) bool { return lookup(name).Secret() })
		switch {
		case e.given[flag]:
			all = append(all, "--"+flag+" is on the command line")
		case secret:
			all = append(all, "--"+flag+" (not shown)")
		default:
			all = append(all, fmt.Sprintf("--%s=%v", flag, a.value))
		}
	}
	slices.Sort(all)
	own, hasOwn := e.assigned[v.Name]
	switch {
	case len(all) > 0:
		return strings.Join(all, " ")
	case hasOwn && v.Secret():
		return "(not shown)"
	case hasOwn:
		return fmt.Sprint(own.value)
	case v.Supported() && v.Flag == "" && !v.Secret():
		return text
	default:
		return ""
	}
}

// NameVariables adds to an error the variables that set the flags in its text.
func (e *Environment) NameVariables(err error) error {
	if err == nil {
		return nil
	}
	var from []string
	for flag, a := range e.assigned {
		named := regexp.MustCompile(`--` + flag + `([^-a-z]|$)`).MatchString(err.Error())
		if !named || e.given[flag] {
			continue
		}
		for _, name := range a.from {
			if !strings.Contains(err.Error(), name) && !slices.Contains(from, name) {
				from = append(from, name)
			}
		}
	}
	if len(from) == 0 {
		return err
	}
	slices.Sort(from)
	return fmt.Errorf("%w\n(set by %s)", err, strings.Join(from, ", "))
}
