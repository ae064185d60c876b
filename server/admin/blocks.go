package admin

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// blocks returns this replica's blocks, or nil if they are off or the counters are in memory.
func (a *API) blocks(now limiter.Time) *live.Blocks {
	type found struct {
		charge      *limiter.Charge
		description any
		live.BlockState
	}
	compare := func(x, y found) int { return live.CompareBlocks(x.BlockState, y.BlockState) }
	b, largest := &live.Blocks{Largest: []live.BlockCounter{}}, []found{}
	var ok bool
	b.HotCounters, b.Replicas, ok = a.service.Blocks(now, func(c *limiter.Charge, description any, unused, size uint64) {
		one := found{c, description, live.BlockState{Unused: unused, Size: size}}
		b.Unused = limiter.SaturatingAdd(b.Unused, unused)
		at, _ := slices.BinarySearchFunc(largest, one, compare)
		if at == live.MaxBlockCounters {
			return
		}
		largest = slices.Insert(largest[:min(len(largest), live.MaxBlockCounters-1)], at, one)
	})
	if !ok {
		return nil
	}
	for _, one := range largest {
		c := live.BlockCounter{BlockState: one.BlockState}
		c.CounterName, _ = one.description.(live.CounterName)
		if recorder := a.service.Recorder(); recorder.Mode() != live.Off {
			c.Hash = recorder.Hash(one.charge.ID)
		}
		b.Largest = append(b.Largest, c)
	}
	return b
}

// blockState returns this replica's block of the counter of c, or nil if it has none.
func (a *API) blockState(now limiter.Time, c *limiter.Charge) *live.BlockState {
	unused, size := a.service.Block(now, c)
	if size == 0 {
		return nil
	}
	return &live.BlockState{Unused: unused, Size: size}
}
