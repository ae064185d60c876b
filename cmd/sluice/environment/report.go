package environment

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Report logs what the variables did: one line at info for each section, with the flags
// that each variable set, and one line at warn for each reason why some have no effect.
func (e *Environment) Report(logger *zap.Logger) {
	for _, s := range sections {
		var fields []zap.Field
		for i := range s.variables {
			if did := e.effect(&s.variables[i]); did != "" {
				fields = append(fields, zap.String(s.variables[i].Name, did))
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
		logger.Warn("environment: unknown, perhaps misspelt", zap.Strings("variables", misspelt))
	}
	if len(ownNames) > 0 {
		logger.Warn("environment: sluice has no variables of its own name: use flags", zap.Strings("variables", ownNames))
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

// effect says what a variable did, "" if it did nothing.
func (e *Environment) effect(v *Variable) string {
	text, ok := e.set[v.Name]
	if _, unused := e.unused[v.Name]; !ok || unused {
		return ""
	}
	var all []string
	for flag, a := range e.assigned {
		if !slices.Contains(a.from, v.Name) {
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
	if len(all) == 0 && v.Supported() && v.Flag == "" && !v.Secret() {
		return text
	}
	return strings.Join(all, " ")
}

// NameVariables adds to an error the variables that set the flags which it names.
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

// knownPrefixes are beginnings of names that hardly any other program uses.
var knownPrefixes = []string{
	"CONFIG_GRPC_XDS_", "XDS_CLIENT_", "GRPC_SERVER_TLS_", "GRPC_CLIENT_TLS_", "GRPC_MAX_C",
	"RUNTIME_", "TRACING_", "LIMIT_RE", "LIMIT_LIMIT", "LIMIT_ALL_", "USE_STATSD", "USE_DOG_STATSD", "USE_PROMETHEUS",
}

// serviceLink is how Kubernetes names the variables of a Service.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT(_\d+_\w+)?$`)

// unknownVariables returns the names that look like one of the table, but are not there, with
// the one that may be meant; and those that begin with sluice's own name.
func (e *Environment) unknownVariables() (misspelt, ownNames []string) {
	for name := range e.environ {
		if e.set[name] != "" || lookup(name).kind != "" || serviceLink.MatchString(name) {
			continue
		}
		like := slices.ContainsFunc(knownPrefixes, func(start string) bool { return strings.HasPrefix(name, start) }) ||
			e.isTrue("USE_DOG_STATSD") && strings.HasPrefix(name, "DOG_STATSD_") || // of a mogrifier that none names
			e.assigned["store-names"].value != nil && strings.HasPrefix(name, "REDIS_") // a later one, or a password that is not used
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

// nearest returns the variable of the table of which name is a slip of the finger, or "".
func nearest(name string) string {
	const shortest, longest, slips = 6, 64, 2 // short names are often a slip away from others
	if len(name) < shortest || len(name) > longest {
		return ""
	}
	best, least := "", slips+1
	for v := range All() {
		if max(len(name), len(v.Name))-min(len(name), len(v.Name)) >= least {
			continue // that many letters more
		}
		if d := rules.EditDistance(name, v.Name); d < least {
			best, least = v.Name, d
		}
	}
	return best
}
