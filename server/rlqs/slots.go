package rlqs

import (
	"container/list"

	"github.com/sluice-ratelimit/sluice/internal/heap"
)

// MaxStreams is the maximum number of open streams. Each Envoy has one for each domain.
const MaxStreams = 10_000

// slots are the slots of open streams. A client may acquire free slots while it has fewer than are free, so a single
// client gets at most half of them, and leaves half of the rest to each further client.
//
// A client that has as many as are free takes a slot from the client with the most streams, if that has more: the
// slot of its oldest stream without a report; or, if no slot is free, that of its newest stream.
type slots struct {
	used      int
	clients   map[uint64]*client
	byStreams heap.Heap[*client] // the first one has the most streams
}

// client is a client with slots.
type client struct {
	id    uint64
	index int // index in slots.byStreams
	// unreported are its streams without a report, and reported the others, the oldest first.
	unreported, reported list.List
}

func (c *client) streams() int { return c.unreported.Len() + c.reported.Len() }

// Less implements [heap.Element]: the client with the most streams is the first one.
func (c *client) Less(other *client) bool { return c.streams() > other.streams() }

// SetIndex implements [heap.Element].
func (c *client) SetIndex(i int) { c.index = i }

// slot is the slot of a stream.
type slot struct {
	client  *client // nil if it has none
	element *list.Element
}

// acquire gives a stream of a client a slot. evicted is the stream that loses its slot, nil for none. ok is false if
// there is no slot.
func (p *slots) acquire(st *Stream, id uint64) (evicted *Stream, ok bool) {
	has := 0
	if c := p.clients[id]; c != nil {
		has = c.streams()
	}
	if has >= MaxStreams-p.used {
		if evicted = p.evictionCandidate(has); evicted == nil {
			return nil, false
		}
		p.release(evicted)
	}
	c := p.clients[id]
	if c == nil {
		c = &client{id: id}
		p.clients[id] = c
		p.byStreams.Push(c)
	}
	p.used++
	st.slot = slot{c, c.unreported.PushBack(st)}
	p.byStreams.Fix(c.index)
	return evicted, true
}

// evictionCandidate returns the stream whose slot a client with the given number of streams may take, nil for none.
func (p *slots) evictionCandidate(has int) *Stream {
	if len(p.byStreams) == 0 || p.byStreams[0].streams() <= has+1 {
		return nil
	}
	e := p.byStreams[0].unreported.Front()
	if e == nil && p.used == MaxStreams {
		e = p.byStreams[0].reported.Back()
	}
	if e == nil {
		return nil
	}
	st, _ := e.Value.(*Stream)
	return st
}

// markReported records that a stream has reported.
func (p *slots) markReported(st *Stream) {
	if c := st.slot.client; c != nil {
		c.unreported.Remove(st.slot.element)
		st.slot.element = c.reported.PushBack(st)
	}
}

// release frees the slot of a stream, if it has one.
func (p *slots) release(st *Stream) {
	c := st.slot.client
	if c == nil {
		return
	}
	c.unreported.Remove(st.slot.element) // no effect if it is in the other list
	c.reported.Remove(st.slot.element)
	st.slot = slot{}
	p.used--
	if c.streams() == 0 {
		p.byStreams.Remove(c.index)
		delete(p.clients, c.id)
		return
	}
	p.byStreams.Fix(c.index)
}
