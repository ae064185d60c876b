package heap_test

import (
	stdheap "container/heap"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/heap"
)

type element struct{ key, index int }

func (e *element) Less(other *element) bool { return e.key < other.key }
func (e *element) SetIndex(i int)           { e.index = i }

// keys is the same heap for package container/heap.
type keys []*element

func (k *keys) Len() int           { return len(*k) }
func (k *keys) Less(i, j int) bool { return (*k)[i].key < (*k)[j].key }
func (k *keys) Swap(i, j int)      { (*k)[i], (*k)[j] = (*k)[j], (*k)[i] }
func (k *keys) Push(e any)         { *k = append(*k, e.(*element)) }
func (k *keys) Pop() any {
	last := (*k)[len(*k)-1]
	*k = (*k)[:len(*k)-1]
	return last
}

// TestHeapMatchesContainerHeap compares the order of all elements, including equal ones, after
// random changes.
func TestHeapMatchesContainerHeap(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var got heap.Heap[*element]
		var want keys
		for range 300 {
			switch n := len(got); {
			case n == 0 || r.IntN(5) < 2:
				e := &element{key: r.IntN(20)}
				got.Push(e)
				stdheap.Push(&want, e)
			case r.IntN(2) == 0:
				i := r.IntN(n)
				got[i].key = r.IntN(20)
				got.Fix(i)
				stdheap.Fix(&want, i)
			default:
				i := r.IntN(n)
				removed := got[i]
				got.Remove(i)
				stdheap.Remove(&want, i)
				if removed.index != -1 {
					t.Fatalf("seed %d: the index of a removed element is %d, want -1", seed, removed.index)
				}
			}
			if !slices.Equal(got, heap.Heap[*element](want)) {
				t.Fatalf("seed %d: the heap is in another order than that of container/heap", seed)
			}
			for i, e := range got {
				if e.index != i {
					t.Fatalf("seed %d: element %d has the index %d", seed, i, e.index)
				}
			}
		}
	}
}
