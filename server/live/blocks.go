package live

import (
	"cmp"
	"slices"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// MaxBlockCounters bounds the size of [Blocks].
const MaxBlockCounters = 20

// Blocks describes the hits that a replica has charged to the store in advance.
type Blocks struct {
	// HotCounters is the number of counters that may have blocks. Several replicas count each of
	// theirs.
	HotCounters int `json:"hot_counters"`
	// Unused is the number of unused hits in all blocks.
	Unused uint64 `json:"unused"`
	// Replicas is the number of replicas among which blocks are divided, 0 if it is not known.
	Replicas int64 `json:"replicas"`
	// Largest contains the counters with the most unused hits, sorted as by [CompareBlocks], at
	// most [MaxBlockCounters].
	Largest []BlockCounter `json:"largest"`
}

// BlockCounter is a counter with a block.
type BlockCounter struct {
	// Replica is the address of the replica that has the block. It is set by [Sum].
	Replica string `json:"replica,omitempty"`
	// Hash identifies the counter; see [Key]. It is empty in mode [Off].
	Hash string `json:"hash,omitempty"`
	CounterName
	BlockState
}

// CounterName describes a counter to operators. Its fields are those of [Key].
type CounterName struct {
	Domain     string `json:"domain"`
	Descriptor string `json:"descriptor,omitempty"`
	Rule       string `json:"rule,omitempty"`
	Limit      string `json:"limit,omitempty"`
	OwnLimit   string `json:"own_limit,omitempty"`
	Table      string `json:"table,omitempty"`
}

// BlockState describes hits of a counter that a replica has charged to the store in advance. They
// are among the used hits of the counter.
type BlockState struct {
	// Unused is the number of hits that are left, and Size their number after the last charge.
	Unused uint64 `json:"unused"`
	Size   uint64 `json:"size"`
}

// CompareBlocks compares by unused hits, then by size, both in descending order.
func CompareBlocks(a, b BlockState) int {
	return cmp.Or(cmp.Compare(b.Unused, a.Unused), cmp.Compare(b.Size, a.Size))
}

// add returns the sum of the blocks of two replicas, each of which may be nil. Replica is the address
// of the second.
func (b *Blocks) add(o *Blocks, replica string) *Blocks {
	if o == nil {
		return b
	}
	sum := &Blocks{Largest: []BlockCounter{}}
	if b != nil {
		*sum = *b
	}
	sum.HotCounters += o.HotCounters
	sum.Unused = limiter.SaturatingAdd(sum.Unused, o.Unused)
	sum.Replicas = max(sum.Replicas, o.Replicas)
	for _, c := range o.Largest {
		c.Replica = replica
		sum.Largest = append(sum.Largest, c)
	}
	slices.SortStableFunc(sum.Largest, func(a, b BlockCounter) int { return CompareBlocks(a.BlockState, b.BlockState) })
	sum.Largest = sum.Largest[:min(len(sum.Largest), MaxBlockCounters)]
	return sum
}

// add returns the sum of the blocks of a counter at two replicas, each of which may be nil.
func (b *BlockState) add(o *BlockState) *BlockState {
	if b == nil || o == nil {
		return cmp.Or(b, o)
	}
	return &BlockState{limiter.SaturatingAdd(b.Unused, o.Unused), limiter.SaturatingAdd(b.Size, o.Size)}
}
