package main

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/process"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server"
)

// boundsFlags bound what clients can cost.
type boundsFlags struct {
	CounterMemory int64         `type:"size" default:"64MiB" placeholder:"SIZE" help:"Memory for counters. Default 64MiB."`
	Request       server.Bounds `embed:""`
	Limits        server.Limits `embed:""`
}

// check holds the memory to what the machine has.
func (f *boundsFlags) check() error {
	f.Request.MessageBytes = f.Limits.MaxMessageBytes
	machine := process.MachineMemory()
	most := min(machine, limiter.MaxBytes)
	switch {
	case f.CounterMemory > machine:
		return fmt.Errorf("--counter-memory is %d: this machine has %d bytes of memory, so it must be %d to %d",
			f.CounterMemory, machine, limiter.MinBytes, most)
	case f.CounterMemory < limiter.MinBytes || f.CounterMemory > most:
		return fmt.Errorf("--counter-memory is %d: must be %d to %d", f.CounterMemory, limiter.MinBytes, most)
	}
	return nil
}
