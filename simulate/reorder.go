package simulate

import (
	"cmp"
	"slices"
)

// queuedRequest is a request that waits for its turn.
type queuedRequest struct {
	at     int64
	batch  *batch
	offset uint32
	// order is the request's place among those of its log.
	order uint32
}

// reorder puts requests in the order of their times. Envoy writes a line when a request
// ends, so that lines come a little later than their times say. Requests wait in slots of
// a short time each. A slot is sorted and goes on as soon as a request comes whose time is
// a window later.
//
// A heap would take four times the time: it is larger than the caches.
type reorder struct {
	// width is how long a slot is, in nanoseconds.
	width int64
	slots [][]queuedRequest
	// first is the number of the oldest slot that may have requests: time / width.
	first int64
	// newest is the number of the newest one that has.
	newest int64
	begun  bool
	order  uint32

	// ready are requests in order, of which next have gone on.
	ready []queuedRequest
	next  int
}

// slotsOfWindow is how many slots a window has.
const slotsOfWindow = 1024

func newReorder(window int64) *reorder {
	return &reorder{width: max(1, window/slotsOfWindow), slots: make([][]queuedRequest, slotsOfWindow+1)}
}

// add takes a request. It reports false if it comes too late: a later one may have gone on.
func (r *reorder) add(w queuedRequest) bool {
	w.order = r.order
	r.order++
	n := w.at / r.width
	if !r.begun {
		r.begun, r.first, r.newest = true, n-slotsOfWindow, n
	}
	if n < r.first {
		return false
	}
	if oldest := n - slotsOfWindow; oldest > r.first {
		for ; r.first < oldest && r.first <= r.newest; r.first++ {
			r.release()
		}
		r.first = oldest
	}
	r.newest = max(r.newest, n)
	i := n % int64(len(r.slots))
	r.slots[i] = append(r.slots[i], w)
	return true
}

// release sends the oldest slot on.
func (r *reorder) release() {
	i := r.first % int64(len(r.slots))
	if i < 0 { // before 1970, where nothing is
		return
	}
	slot := r.slots[i]
	if len(slot) == 0 {
		return
	}
	slices.SortFunc(slot, func(a, b queuedRequest) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(int32(a.order-b.order), 0))
	})
	if r.next == len(r.ready) {
		r.ready, r.next = r.ready[:0], 0
	}
	r.ready = append(r.ready, slot...)
	clear(slot)
	r.slots[i] = slot[:0]
}

// flush sends on the oldest slot that has requests. It reports whether there was one.
func (r *reorder) flush() bool {
	for r.begun && r.first <= r.newest && r.next == len(r.ready) {
		r.release()
		r.first++
	}
	return r.next < len(r.ready)
}

// pop returns the next request in order; ok is false if none is ready.
func (r *reorder) pop() (w queuedRequest, ok bool) {
	if r.next == len(r.ready) {
		return w, false
	}
	w = r.ready[r.next]
	r.ready[r.next].batch = nil
	r.next++
	return w, true
}
