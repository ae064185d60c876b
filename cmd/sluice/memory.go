package main

import (
	"os"
	"runtime/debug"
	"slices"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// divide divides a table that has not been used for the rules of set.
func divide(table *limiter.Table, set *descriptors.Set) error {
	var spaces []int64
	for _, domain := range set.Domains() {
		spaces = append(spaces, set.MaxCounters(domain))
	}
	return table.Divide(slices.Collect(set.Policies()), spaces)
}

// boundMemory tells Go how much memory it may take: nine tenths of the container's
// limit less the counters that are not in the heap. GOMEMLIMIT, where set, holds
// instead.
func boundMemory(table *limiter.Table, logger *zap.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	container, err := memlimit.FromCgroup()
	if err != nil {
		return // no container, or one without a limit
	}
	mapped := table.Stats().Mapped
	limit := int64(float64(container)*0.9) - mapped
	if limit <= 0 {
		logger.Warn("the counters alone take more than the container's memory: lower --counter-memory or raise the limit",
			zap.Uint64("container_bytes", container), zap.Int64("counter_bytes", mapped))
		return
	}
	debug.SetMemoryLimit(limit)
	logger.Info("memory limit set", zap.Int64("gomemlimit_bytes", limit), zap.Uint64("container_bytes", container))
}
