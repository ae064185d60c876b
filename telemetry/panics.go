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
	leftOut int       // panics since the last line
}

// panicsLogged is the least time between two lines of the log. A line has a stack, so a client that has found
// a bug could otherwise fill a disk.
const panicsLogged = 10 * time.Second

// NewPanics returns Panics that count in a metric, and log one panic in ten seconds.
func NewPanics(counted prometheus.Counter, logger *zap.Logger) *Panics {
	return &Panics{counted: counted, logger: logger}
}

// Caught takes in a panic, which is a bug of ours. A deferred function calls it with what recover returned.
//
// The line says where it was, and how many panics had none since the last line. The value of a panic may
// have parts of a request, so above debug only its type is logged. Go's own errors, such as an index out of
// range, have only numbers and types, and are logged in full.
func (p *Panics) Caught(thrown any) {
	p.counted.Inc()
	leftOut, log := p.mayLog()
	if !log {
		return
	}
	what, others := zap.Skip(), zap.Skip()
	if err, ok := thrown.(error); ok {
		if own, ok := errors.AsType[runtime.Error](err); ok {
			what = zap.String("error", own.Error())
		}
	}
	if leftOut > 0 {
		others = zap.Int("left_out", leftOut)
	}
	p.logger.Error("panic in a request; more within ten seconds are only counted",
		zap.String("type", fmt.Sprintf("%T", thrown)), what, others, zap.ByteString("stack", debug.Stack()))
	p.logger.Debug("panic in a request: what was thrown", zap.Any("panic", thrown))
}

// mayLog reports whether a panic is logged, and how many were not since the last one that was.
func (p *Panics) mayLog() (leftOut int, log bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now() //nolint:forbidigo // how often a line comes decides nothing
	if now.Before(p.next) {
		p.leftOut++
		return 0, false
	}
	leftOut, p.leftOut, p.next = p.leftOut, 0, now.Add(panicsLogged)
	return leftOut, true
}
