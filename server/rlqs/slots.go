package rlqs

import (
	"container/list"

	"github.com/sluice-ratelimit/sluice/internal/heap"
)

// MaxStreams is how many streams may be open at once. Each Envoy has one for each domain.
const MaxStreams = 10_000

// slots are the slots of the open streams. A client takes free ones while it has fewer than are free, so one client takes
// half of them at most, and leaves each next client half of the rest.
//
// A client that has as many as are free takes the slot of the client with the most streams, if that has more: the slot of
// its oldest stream without a report; or, if no slot is free, that of its newest stream.
type slots struct {
	taken   int
	clients map[uint64]*client
	most    heap.Heap[*client] // the first one has the most streams
}

// client is the client of one or more streams that have slots.
type client struct {
	id    uint64
	index int // in slots.most
	// unreported are its streams without a report, and reported the others. The oldest is the first.
	unreported, reported list.List
}

func (c *client) streams() int { return c.unreported.Len() + c.reported.Len() }

// Less makes the client with the most streams the first of the heap.
func (c *client) Less(other *client) bool { return c.streams() > other.streams() }

// SetIndex notes the index in the heap.
func (c *client) SetIndex(i int) { c.index = i }

// slot is a stream's.
type slot struct {
	client *client // nil: it has none
	place  *list.Element
}

// take gives a stream of a client a slot. evicted is the stream that loses its own for it, nil for none. ok is false if
// there is no slot.
func (p *slots) take(st *Stream, id uint64) (evicted *Stream, ok bool) {
	has := 0
	if c := p.clients[id]; c != nil {
		has = c.streams()
	}
	if has >= MaxStreams-p.taken {
		if evicted = p.evictable(has); evicted == nil {
			return nil, false
		}
		p.leave(evicted)
	}
	c := p.clients[id]
	if c == nil {
		c = &client{id: id}
		p.clients[id] = c
		p.most.Push(c)
	}
	p.taken++
	st.slot = slot{c, c.unreported.PushBack(st)}
	p.most.Fix(c.index)
	return evicted, true
}

// evictable returns the stream whose slot goes to a client that has the given number of streams, nil for none.
func (p *slots) evictable(has int) *Stream {
	if len(p.most) == 0 || p.most[0].streams() <= has+1 {
		return nil
	}
	e := p.most[0].unreported.Front()
	if e == nil && p.taken == MaxStreams {
		e = p.most[0].reported.Back()
	}
	if e == nil {
		return nil
	}
	st, _ := e.Value.(*Stream)
	return st
}

// report notes that a stream has made a report.
func (p *slots) report(st *Stream) {
	if c := st.slot.client; c != nil {
		c.unreported.Remove(st.slot.place)
		st.slot.place = c.reported.PushBack(st)
	}
}

// leave frees the slot of a stream, if it has one.
func (p *slots) leave(st *Stream) {
	c := st.slot.client
	if c == nil {
		return
	}
	c.unreported.Remove(st.slot.place) // which does nothing if it is in the other
	c.reported.Remove(st.slot.place)
	st.slot = slot{}
	p.taken--
	if c.streams() == 0 {
		p.most.Remove(c.index)
		delete(p.clients, c.id)
		return
	}
	p.most.Fix(c.index)
}
