// Package heap is a generic container/heap. Elements know their index, so that any of them can be
// moved or removed.
package heap

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
func (h *Heap[E]) Push(e E) {
	*h = append(*h, e)
	h.up(len(*h)-1, e)
}

// Fix restores the order after the element with index i has changed.
func (h Heap[E]) Fix(i int) {
	if e := h[i]; !h.down(i, e) {
		h.up(i, e)
	}
}

// Remove removes the element with index i.
func (h *Heap[E]) Remove(i int) {
	old := *h
	last := len(*h) - 1
	removed := old[i]
	old[i] = old[last]
	clear(old[last:])
	*h = old[:last]
	if i < last {
		h.Fix(i)
	}
	removed.SetIndex(-1)
}

// up moves e from index i towards the root, to its place.
func (h Heap[E]) up(i int, e E) {
	for i > 0 {
		parent := (i - 1) / 2
		if !e.Less(h[parent]) {
			break
		}
		h.set(i, h[parent])
		i = parent
	}
	h.set(i, e)
}

// down moves e from index i towards the leaves, to its place. It reports whether e has moved.
func (h Heap[E]) down(i int, e E) bool {
	first := i
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && h[right].Less(h[child]) {
			child = right
		}
		if !h[child].Less(e) {
			break
		}
		h.set(i, h[child])
		i = child
	}
	h.set(i, e)
	return i > first
}

func (h Heap[E]) set(i int, e E) {
	h[i] = e
	e.SetIndex(i)
}
