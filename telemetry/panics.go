package telemetry

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Panics counts and logs panics. Its methods may be called concurrently.
type Panics struct {
	counted prometheus.Counter
	logger  *zap.Logger

	mu      sync.Mutex
	next    time.Time // when a line may be logged again
	skipped int       // panics since the last line
}

// panicLogInterval is the minimum time between two lines of the log. A line contains a stack, so a
// client that has found a bug could otherwise fill a disk.
const panicLogInterval = 10 * time.Second

// NewPanics returns a Panics that counts in a metric and logs one panic in ten seconds.
func NewPanics(counted prometheus.Counter, logger *zap.Logger) *Panics {
	return &Panics{counted: counted, logger: logger}
}

// Report counts and logs a panic. A deferred function calls it with the value that recover
// returned.
//
// The line contains the stack and the number of panics that were not logged since the last line.
// The value may contain parts of a request, so above debug only its type is logged. Runtime errors,
// such as an index out of range, contain only numbers and types, and are logged in full.
func (p *Panics) Report(value any) {
	p.counted.Inc()
	skipped, log := p.mayLog()
	if !log {
		return
	}
	errorField := zap.Skip()
	skippedField := zap.Skip()
	if err, ok := value.(error); ok {
		if own, ok := errors.AsType[runtime.Error](err); ok {
			errorField = zap.String("error", own.Error())
		}
	}
	if skipped > 0 {
		skippedField = zap.Int("skipped", skipped)
	}
	p.logger.Error("panic in a request; more within ten seconds are only counted",
		zap.String("type", fmt.Sprintf("%T", value)), errorField, skippedField, zap.ByteString("stack", debug.Stack()))
	p.logger.Debug("panic in a request: value", zap.Any("panic", value))
}

// Recover reports a panic of the function that has deferred it, and ends the panic.
func (p *Panics) Recover() {
	if value := recover(); value != nil {
		p.Report(value)
	}
}

// mayLog reports whether to log a panic, and how many were not logged since the last line.
func (p *Panics) mayLog() (skipped int, log bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now() //nolint:forbidigo // how often a line comes decides nothing
	if now.Before(p.next) {
		p.skipped++
		return 0, false
	}
	skipped = p.skipped
	p.skipped = 0
	p.next = now.Add(panicLogInterval)
	return skipped, true
}
