package main

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// report logs what the variables did: a line at info for each section, with what
// each variable set, and one at warn for each reason why some have no effect.
func (e *environment) report(logger *zap.Logger) {
	for _, s := range sections {
		var fields []zap.Field
		for i := range s.variables {
			if did := e.did(&s.variables[i]); did != "" {
				fields = append(fields, zap.String(s.variables[i].name, did))
			}
		}
		if len(fields) > 0 {
			logger.Info("environment: "+strings.ToLower(s.title[:1])+s.title[1:], fields...)
		}
	}
	var reasons []string
	names := map[string][]string{}
	for v := range variables() {
		if why, ok := e.unused[v.name]; ok {
			if names[why] == nil {
				reasons = append(reasons, why)
			}
			names[why] = append(names[why], v.name)
		}
	}
	for _, why := range reasons {
		logger.Warn("environment: no effect: "+why, zap.Strings("variables", names[why]))
	}
}

// did says what a variable did, "" if it did nothing.
func (e *environment) did(v *variable) string {
	text, ok := e.set[v.name]
	if _, unused := e.unused[v.name]; !ok || unused {
		return ""
	}
	var all []string
	for flag, a := range e.assigned {
		if !slices.Contains(a.from, v.name) {
			continue
		}
		switch {
		case e.given[flag]:
			all = append(all, "--"+flag+" is on the command line")
		case v.secret:
			all = append(all, "--"+flag+" (not shown)")
		default:
			all = append(all, fmt.Sprintf("--%s=%v", flag, a.value))
		}
	}
	slices.Sort(all)
	if len(all) == 0 && v.status == supported && v.flag == "" && !v.secret {
		return text
	}
	return strings.Join(all, " ")
}
