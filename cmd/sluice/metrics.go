package main

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// metricsFlags say how metrics are served and look.
type metricsFlags struct {
	MetricsPath              string `group:"listeners" name:"metrics-path" default:"/metrics" placeholder:"PATH" help:"Where the metrics listener answers. Default /metrics."`
	ResponseTimeMilliseconds bool   `group:"process" name:"response-time-milliseconds" help:"Measure ratelimit_service_response_time_seconds in milliseconds, in spite of its name, for dashboards that expect them."`
}

// Validate checks what the types do not.
func (m *metricsFlags) Validate() error {
	if !strings.HasPrefix(m.MetricsPath, "/") {
		return fmt.Errorf("--metrics-path (PROMETHEUS_PATH) is %q: must begin with /", m.MetricsPath)
	}
	return nil
}

func (m *metricsFlags) options(tags []telemetry.Tag) telemetry.Options {
	return telemetry.Options{Tags: tags, Milliseconds: m.ResponseTimeMilliseconds, Build: thisBuild()}
}
