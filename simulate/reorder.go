package simulate

import (
	"cmp"
	"slices"
)

type queuedRequest struct {
	at     int64
	batch  *batch
	offset uint32
	// order is the request's position in its log.
	order uint32
}

// reorder sorts requests by time. Envoy logs a request when it ends, so lines come a little late.
// Requests are stored in slots of a short time span each. A slot is sorted and released when a
// request arrives that is a window later.
//
// A heap would take four times as long, because it is larger than the CPU caches.
type reorder struct {
	// width is the time span of a slot in nanoseconds.
	width int64
	slots [][]queuedRequest
	// first is the oldest slot that may have requests, as time / width.
	first int64
	// newest is the newest slot with requests.
	newest int64
	begun  bool
	order  uint32

	// ready are the released requests, of which the first next were consumed.
	ready []queuedRequest
	next  int
}

// slotsOfWindow is the number of slots of a window.
const slotsOfWindow = 1024

func newReorder(window int64) *reorder {
	return &reorder{width: max(1, window/slotsOfWindow), slots: make([][]queuedRequest, slotsOfWindow+1)}
}

// add adds a request. It returns false if its slot was already released.
func (r *reorder) add(w queuedRequest) bool {
	w.order = r.order
	r.order++
	n := w.at / r.width
	if !r.begun {
		r.begun = true
		r.first = n - slotsOfWindow
		r.newest = n
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

// release sorts the oldest slot and appends it to ready.
func (r *reorder) release() {
	i := r.first % int64(len(r.slots))
	if i < 0 { // before 1970, which has no requests
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
		r.ready = r.ready[:0]
		r.next = 0
	}
	r.ready = append(r.ready, slot...)
	clear(slot)
	r.slots[i] = slot[:0]
}

// flush releases the oldest slot with requests. It returns false if there is none.
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
