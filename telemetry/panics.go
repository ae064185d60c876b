package telemetry

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Panics counts and logs panics. Its methods may be called concurrently.
type Panics struct {
	counted prometheus.Counter
	rare    *zap.Logger
}

// NewPanics returns a Panics that counts in a metric and logs one panic in ten seconds: a line
// contains a stack, so a client that has found a bug could otherwise fill a disk.
func NewPanics(counted prometheus.Counter, logger *zap.Logger) *Panics {
	return &Panics{counted: counted, rare: Rare(logger)}
}

// Report counts and logs a panic. A deferred function calls it with the value that recover
// returned.
//
// The value may contain parts of a request, so above debug only its type is logged. Runtime errors,
// such as an index out of range, contain only numbers and types, and are logged in full.
func (p *Panics) Report(value any) {
	p.counted.Inc()
	line := p.rare.Check(zap.ErrorLevel, "panic in a request; more within ten seconds are only counted")
	if line == nil {
		return
	}
	errorField := zap.Skip()
	if err, ok := value.(error); ok {
		if own, ok := errors.AsType[runtime.Error](err); ok {
			errorField = zap.String("error", own.Error())
		}
	}
	line.Write(zap.String("type", fmt.Sprintf("%T", value)), errorField, zap.ByteString("stack", debug.Stack()))
	p.rare.Debug("panic in a request: value", zap.Any("panic", value))
}

// Recover reports a panic of the function that has deferred it, and ends the panic.
func (p *Panics) Recover() {
	if value := recover(); value != nil {
		p.Report(value)
	}
}
