package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Validate checks what the types do not.
func (s *serveCmd) Validate() error { return s.environment.Blame(s.check()) }

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
	return cmp.Or(s.Bounds.check(), s.TLS.check(), s.Statsd.check(), s.Tracing.check(), s.XDS.check(s.environment.Given("config")),
		s.checkAddresses(), s.checkTimes())
}

func (s *serveCmd) checkAddresses() error {
	for _, a := range []struct{ flag, addr string }{
		{"--grpc-addr", s.GRPCAddr},
		{"--http-addr", s.HTTPAddr},
		{"--json-addr", s.TLS.JSONAddr},
		{"--debug-addr", s.DebugAddr},
		{"--metrics-addr", s.MetricsAddr},
	} {
		if a.addr == "" || strings.HasPrefix(a.addr, "unix:") {
			continue
		}
		if _, _, err := net.SplitHostPort(a.addr); err != nil {
			return fmt.Errorf("%s is %q: must be host:port, unix:///path or unix:@name, or empty", a.flag, a.addr)
		}
	}
	return nil
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

// isToken reports whether name is a header name: a token of RFC 9110, 5.6.2.
func isToken(name string) bool {
	return name != "" && strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
