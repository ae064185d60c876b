package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Validate checks what the types do not.
func (s *serveCmd) Validate() error { return s.environment.blame(s.check()) }

func (s *serveCmd) check() error {
	if _, err := telemetry.NewLogger(io.Discard, s.LogLevel, s.LogFormat); err != nil {
		return fmt.Errorf("--log-level, --log-format: %w", err)
	}
	for _, h := range []struct{ flag, name string }{
		{"--limit-header", s.LimitHeader},
		{"--remaining-header", s.RemainingHeader},
		{"--reset-header", s.ResetHeader},
	} {
		if h.name != "" && !isToken(h.name) {
			return fmt.Errorf("%s is %q: must be a header name, or empty to leave it out", h.flag, h.name)
		}
	}
	for _, n := range []struct {
		flag string
		low  bool
	}{
		{"--max-descriptors", s.MaxDescriptors < 1},
		{"--max-message", s.MaxMessage < 1},
		{"--max-streams", s.MaxStreams < 1},
		{"--max-connections", s.MaxConnections < 1},
		{"--drain-timeout", s.DrainTimeout <= 0},
	} {
		if n.low {
			return fmt.Errorf("%s must be above 0", n.flag)
		}
	}
	if err := cmp.Or(s.TLS.check(), s.Statsd.check(), s.Tracing.check(), s.XDS.check(s.environment.given["config"])); err != nil {
		return err
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--drain-delay", s.DrainDelay},
		{"--max-connection-age", s.MaxConnAge},
		{"--max-connection-age-grace", s.MaxConnGrace},
	} {
		if d.value < 0 {
			return fmt.Errorf("%s is %v: must not be negative", d.flag, d.value)
		}
	}
	return nil
}

// isToken reports whether name is a header name: a token of RFC 9110, 5.6.2.
func isToken(name string) bool {
	return name != "" && strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
