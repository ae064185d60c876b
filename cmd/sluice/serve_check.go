package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Validate checks what the types do not.
func (s *serveCmd) Validate() error { return s.environment.Blame(s.check()) }

func (s *serveCmd) check() error {
	if _, err := telemetry.NewLogger(io.Discard, s.LogLevel, s.LogFormat); err != nil {
		return fmt.Errorf("--log-level, --log-format: %w", err)
	}
	return cmp.Or(s.Bounds.check(), s.TLS.check(), s.Statsd.check(), s.Tracing.check(), s.XDS.check(s.environment.Given("config")), s.checkTimes())
}

// checkTimes checks the times of the end, which are added up.
func (s *serveCmd) checkTimes() error {
	const day = 24 * time.Hour
	return checkTimes([]boundedTime{
		{"--drain-delay", s.DrainDelay, 0, day},
		{"--drain-timeout", s.DrainTimeout, 1, day},
	})
}

// boundedTime is a flag that is a time, and what is allowed.
type boundedTime struct {
	flag      string
	value     time.Duration
	low, high time.Duration
}

// checkTimes returns which time is out of bounds. A least time of 1 ns says that
// it must be above 0.
func checkTimes(all []boundedTime) error {
	for _, d := range all {
		if d.value >= d.low && d.value <= d.high {
			continue
		}
		least := d.low.String()
		if d.low == 1 {
			least = "above 0"
		}
		return fmt.Errorf("%s is %v: must be %s to %v", d.flag, d.value, least, d.high)
	}
	return nil
}
