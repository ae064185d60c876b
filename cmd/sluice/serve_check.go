package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Validate checks what the types do not.
func (s *serveCmd) Validate() error { return s.environment.Blame(s.check()) }

func (s *serveCmd) check() error {
	if _, err := telemetry.NewLogger(io.Discard, s.LogLevel, s.LogFormat); err != nil {
		return fmt.Errorf("--log-level, --log-format: %w", err)
	}
	return cmp.Or(s.Bounds.check(), s.TLS.check(), s.Statsd.check(), s.Tracing.check(), s.XDS.check(s.environment.Given("config")))
}
