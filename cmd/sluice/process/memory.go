package process

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
)

// MachineMemory returns the bytes of memory that the machine has, or the most that an
// int64 holds if it does not tell. A container may have less.
func MachineMemory() int64 {
	bytes, err := memlimit.FromSystem()
	if err != nil || bytes == 0 {
		return math.MaxInt64
	}
	return int64(min(bytes, math.MaxInt64))
}

// SetMemoryLimit tells Go how much memory it may take: nine tenths of the container's
// limit, less the bytes of counters, which are not in the heap. GOMEMLIMIT, where it
// is set, holds instead.
func SetMemoryLimit(counters int64, logger *zap.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	container, err := memlimit.FromCgroup()
	if err != nil {
		return // no container, or one without a limit
	}
	limit := int64(float64(container)*0.9) - counters
	if limit <= 0 {
		logger.Warn("the counters alone take more than the container's memory: lower --counter-memory or raise the limit",
			zap.Uint64("container_bytes", container), zap.Int64("counter_bytes", counters))
		return
	}
	debug.SetMemoryLimit(limit)
	logger.Info("memory limit set", zap.Int64("gomemlimit_bytes", limit), zap.Uint64("container_bytes", container))
}
