// Package heap is container/heap for elements that know their index, so that any of them can be
// moved or removed.
package heap

import "container/heap"

// An Element is an element of a [Heap].
type Element[E any] interface {
	// Less reports whether the element comes before another one.
	Less(other E) bool
	// SetIndex is called with the element's new index in the heap, and with -1 when it is removed.
	SetIndex(i int)
}

// A Heap is a heap of elements. The first one is the least. The zero value is an empty heap.
type Heap[E Element[E]] []E

// Push adds an element.
func (h *Heap[E]) Push(e E) { heap.Push((*list[E])(h), e) }

// Fix restores the order after the element with index i has changed.
func (h *Heap[E]) Fix(i int) { heap.Fix((*list[E])(h), i) }

// Remove removes the element with index i.
func (h *Heap[E]) Remove(i int) {
	removed := (*h)[i]
	heap.Remove((*list[E])(h), i)
	removed.SetIndex(-1)
}

// list implements [heap.Interface].
type list[E Element[E]] []E

func (l *list[E]) Len() int           { return len(*l) }
func (l *list[E]) Less(i, j int) bool { return (*l)[i].Less((*l)[j]) }

func (l *list[E]) Swap(i, j int) {
	all := *l
	all[i], all[j] = all[j], all[i]
	all[i].SetIndex(i)
	all[j].SetIndex(j)
}

func (l *list[E]) Push(x any) {
	e, _ := x.(E)
	e.SetIndex(len(*l))
	*l = append(*l, e)
}

func (l *list[E]) Pop() any {
	last := len(*l) - 1
	clear((*l)[last:])
	*l = (*l)[:last]
	return nil // Remove has the element
}
