package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/process"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

func (s *serveCmd) Validate() error { return s.environment.NameVariables(s.check()) }

func (s *serveCmd) check() error {
	if _, err := telemetry.NewLogger(io.Discard, s.LogLevel, s.LogFormat); err != nil {
		return fmt.Errorf("--log-level, --log-format: %w", err)
	}
	if s.Server.UnhealthyWithoutStore && s.Store.URL == "" {
		return errors.New("--unhealthy-without-store requires --store")
	}
	return cmp.Or(s.checkMemory(), s.TLS.check(s.Server.JSONAddr), s.Debug.check(), s.Store.check(s.State.File),
		s.Statsd.check(), s.Tracing.check(), s.XDS.check(s.environment.Given("config")))
}

// checkMemory checks --counter-memory against the memory of the machine.
func (s *serveCmd) checkMemory() error {
	machine := process.MachineMemory()
	most := min(machine, limiter.MaxBytes)
	switch {
	case s.CounterMemory > machine:
		return fmt.Errorf("--counter-memory is %d: this machine has %d bytes of memory, so it must be %d to %d",
			s.CounterMemory, machine, limiter.MinBytes, most)
	case s.CounterMemory < limiter.MinBytes || s.CounterMemory > most:
		return fmt.Errorf("--counter-memory is %d: must be %d to %d", s.CounterMemory, limiter.MinBytes, most)
	}
	return nil
}
