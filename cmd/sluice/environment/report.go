package environment

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
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
	misspelt, ownNames := e.unknownVariables()
	if len(misspelt) > 0 {
		logger.Warn("environment: unknown variables, possibly misspelt", zap.Strings("variables", misspelt))
	}
	if len(ownNames) > 0 {
		logger.Warn("environment: sluice does not read variables with the prefix SLUICE_; use flags",
			zap.Strings("variables", ownNames))
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

// knownPrefixes are prefixes of names that hardly any other program uses.
var knownPrefixes = []string{
	"CONFIG_GRPC_XDS_", "XDS_CLIENT_", "GRPC_SERVER_TLS_", "GRPC_CLIENT_TLS_", "GRPC_MAX_C",
	"RUNTIME_", "TRACING_", "LIMIT_RE", "LIMIT_LIMIT", "LIMIT_ALL_", "USE_STATSD", "USE_DOG_STATSD", "USE_PROMETHEUS",
}

// serviceLink matches the variables that Kubernetes sets for a Service.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT(_\d+_\w+)?$`)

// unknownVariables returns unknown variables that resemble those of the table, with the likely
// intended one, and variables with the prefix SLUICE_.
func (e *Environment) unknownVariables() (misspelt, ownNames []string) {
	for name := range e.environ {
		if e.set[name] != "" || lookup(name).kind != "" || serviceLink.MatchString(name) {
			continue
		}
		// With tags for StatsD or a store, variables with these prefixes are meant for this program.
		like := slices.ContainsFunc(knownPrefixes, func(start string) bool { return strings.HasPrefix(name, start) }) ||
			e.isTrue("USE_DOG_STATSD") && strings.HasPrefix(name, "DOG_STATSD_") ||
			e.assigned["store-names"].value != nil && strings.HasPrefix(name, "REDIS_")
		near := nearest(name)
		switch {
		case near != "":
			misspelt = append(misspelt, name+" (for "+near+")")
		case like:
			misspelt = append(misspelt, name)
		case strings.HasPrefix(name, "SLUICE_"):
			ownNames = append(ownNames, name)
		}
	}
	slices.Sort(misspelt)
	slices.Sort(ownNames)
	return misspelt, ownNames
}

// nearest returns the variable that name is a misspelling of, or "".
func nearest(name string) string {
	const minLength, maxLength, maxEdits = 6, 64, 2 // short names are often similar to others
	if len(name) < minLength || len(name) > maxLength {
		return ""
	}
	best := ""
	least := maxEdits + 1
	for v := range All() {
		if max(len(name), len(v.Name))-min(len(name), len(v.Name)) >= least {
			continue // the length alone differs too much
		}
		if d := rules.EditDistance(name, v.Name); d < least {
			best = v.Name
			least = d
		}
	}
	return best
}
