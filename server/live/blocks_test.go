package live

import (
	"slices"
	"testing"
)

// TestSumOfBlocks adds up the blocks of two replicas, and of one that has blocks off.
func TestSumOfBlocks(t *testing.T) {
	of := func(replicas int64, unused ...uint64) *State {
		s := &State{HashKey: "k", Blocks: &Blocks{HotCounters: 30, Replicas: replicas}}
		for _, n := range unused {
			s.Blocks.Unused += n
			s.Blocks.Largest = append(s.Blocks.Largest, BlockCounter{CounterName: CounterName{Limit: "1/second"}, BlockState: BlockState{Unused: n, Size: 2 * n}})
		}
		s.Domains = []DomainState{{Domain: "d", DeniedKeys: []Key{{Hash: "both", Block: &BlockState{1, 4}}}}}
		return s
	}
	a, b, off := of(2, 9, 5, 1), of(3, 7), &State{HashKey: "k"}
	a.Domains[0].DeniedKeys = append(a.Domains[0].DeniedKeys, Key{Hash: "one", Block: &BlockState{2, 8}})
	b.Domains[0].DeniedKeys = append(b.Domains[0].DeniedKeys, Key{Hash: "one"})
	sum := Sum([]string{"a:1", "b:1", "off:1"}, []*State{a, b, off})
	if got := sum.Blocks; got.HotCounters != 60 || got.Unused != 22 || got.Replicas != 3 {
		t.Errorf("the sum is %+v, want 60 hot counters, 22 unused hits and 3 replicas", got)
	}
	var order []BlockCounter
	for _, c := range sum.Blocks.Largest {
		order = append(order, BlockCounter{Replica: c.Replica, BlockState: c.BlockState})
	}
	want := []BlockCounter{
		{Replica: "a:1", BlockState: BlockState{9, 18}},
		{Replica: "b:1", BlockState: BlockState{7, 14}},
		{Replica: "a:1", BlockState: BlockState{5, 10}},
		{Replica: "a:1", BlockState: BlockState{1, 2}},
	}
	if !slices.Equal(order, want) {
		t.Errorf("the largest are %+v, want %+v", order, want)
	}
	for _, k := range sum.Domains[0].DeniedKeys {
		if want := map[string]BlockState{"both": {2, 8}, "one": {2, 8}}[k.Hash]; k.Block == nil || *k.Block != want {
			t.Errorf("the block of key %s is %v, want %v", k.Hash, k.Block, want)
		}
	}
	if len(a.Blocks.Largest) != 3 || a.Blocks.Largest[0].Replica != "" || *a.Domains[0].DeniedKeys[0].Block != (BlockState{1, 4}) {
		t.Errorf("the first state is now %+v", a)
	}
	many := make([]uint64, MaxBlockCounters)
	if n := len(Sum([]string{"a", "b"}, []*State{of(1, many...), of(1, 1)}).Blocks.Largest); n != MaxBlockCounters {
		t.Errorf("%d counters, want %d", n, MaxBlockCounters)
	}
	if sum := Sum([]string{"a", "b"}, []*State{of(1), of(1)}); sum.Blocks.Largest == nil {
		t.Error("without a block the list is nil, want an empty one")
	}
	if sum := Sum([]string{"a", "b"}, []*State{off, off}); sum.Blocks != nil {
		t.Errorf("without blocks the sum is %+v", sum.Blocks)
	}
}
