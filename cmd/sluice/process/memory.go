package process

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
)

// MachineMemory returns the memory of the machine in bytes, or math.MaxInt64 if it is unknown. The
// limit of a container may be lower.
func MachineMemory() int64 {
	bytes, err := memlimit.FromSystem()
	if err != nil || bytes == 0 {
		return math.MaxInt64
	}
	return int64(min(bytes, math.MaxInt64))
}

// SetMemoryLimit sets GOMEMLIMIT to nine tenths of the container's limit minus the given bytes of
// counters, which are not in the heap, unless the variable is already set.
func SetMemoryLimit(counters int64, logger *zap.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	container, err := memlimit.FromCgroup()
	if err != nil {
		return // not in a container, or no limit
	}
	limit := int64(float64(container)*0.9) - counters
	if limit <= 0 {
		logger.Warn("counters alone exceed the memory of the container; lower --counter-memory or raise the limit",
			zap.Uint64("container_bytes", container), zap.Int64("counter_bytes", counters))
		return
	}
	debug.SetMemoryLimit(limit)
	logger.Info("memory limit set", zap.Int64("gomemlimit_bytes", limit), zap.Uint64("container_bytes", container))
}
