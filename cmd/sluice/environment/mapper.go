package environment

import (
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// mappedNames are the metrics of the default mapping of envoyproxy/ratelimit from StatsD to
// Prometheus. sluice has all of them without a mapping.
var mappedNames = []string{
	"ratelimit_service_rate_limit_near_limit",
	"ratelimit_service_rate_limit_over_limit",
	"ratelimit_service_rate_limit_total_hits",
	"ratelimit_service_rate_limit_within_limit",
	"ratelimit_service_rate_limit_shadow_mode",
	"ratelimit_service_should_rate_limit_error",
	"ratelimit_service_total_requests",
	"ratelimit_service_response_time_seconds",
	"ratelimit_service_config_load_success",
	"ratelimit_service_config_load_error",
}

// assignMapper warns about a mapping to metrics that sluice does not have, because dashboards may
// use them.
func (e *Environment) assignMapper() {
	const variable = "PROMETHEUS_MAPPER_YAML"
	path := e.set[variable]
	if path == "" || e.unused[variable] != "" {
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		e.markUnused(err.Error(), variable)
		return
	}
	var mapping struct {
		Mappings []struct {
			Name string `yaml:"name"`
		} `yaml:"mappings"`
	}
	if err := yaml.Unmarshal(text, &mapping); err != nil {
		e.markUnused(path+": "+strings.ReplaceAll(err.Error(), "\n", " "), variable)
		return
	}
	var others []string
	for _, m := range mapping.Mappings {
		if m.Name != "" && !slices.Contains(mappedNames, m.Name) && !slices.Contains(others, m.Name) {
			others = append(others, m.Name)
		}
	}
	if len(others) > 0 {
		e.markUnused("metrics are not translated from StatsD, so these are missing: "+strings.Join(others, ", "), variable)
	}
}
