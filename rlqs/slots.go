package rlqs

import (
	"container/list"

	"github.com/sluice-ratelimit/sluice/internal/heap"
)

// MaxStreams is the maximum number of open streams. Each Envoy has one for each domain.
const MaxStreams = 10_000

// slots are the slots of open streams. A client may acquire a free slot while it has fewer slots
// than are free, so a single client gets at most half of all slots, and the next client at most
// half of the rest.
//
// Beyond that, the client takes a slot from the client with the most streams if that one has at
// least two more. It takes the slot of the other client's oldest stream without a report. If there
// is no such stream and no slot is free, it takes that of the newest stream.
type slots struct {
	used      int
	clients   map[uint64]*client
	byStreams heap.Heap[*client] // the first client has the most streams
}

// client is a client with slots.
type client struct {
	id    uint64
	index int // index in slots.byStreams
	// unreported contains its streams without a report, and reported the others, the oldest first.
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

// acquire acquires a slot for a stream of the client with the given ID. evicted is the stream that
// loses its slot, nil for none. ok is false if the client may not have another slot.
func (s *slots) acquire(st *Stream, id uint64) (evicted *Stream, ok bool) {
	streams := 0
	if c := s.clients[id]; c != nil {
		streams = c.streams()
	}
	if streams >= MaxStreams-s.used {
		if evicted = s.evictionCandidate(streams); evicted == nil {
			return nil, false
		}
		s.release(evicted)
	}
	c := s.clients[id]
	if c == nil {
		c = &client{id: id}
		s.clients[id] = c
		s.byStreams.Push(c)
	}
	s.used++
	st.slot = slot{c, c.unreported.PushBack(st)}
	s.byStreams.Fix(c.index)
	return evicted, true
}

// evictionCandidate returns the stream whose slot a client with the given number of streams may
// take, nil for none.
func (s *slots) evictionCandidate(streams int) *Stream {
	if len(s.byStreams) == 0 || s.byStreams[0].streams() <= streams+1 {
		return nil
	}
	e := s.byStreams[0].unreported.Front()
	if e == nil && s.used == MaxStreams {
		e = s.byStreams[0].reported.Back()
	}
	if e == nil {
		return nil
	}
	st, _ := e.Value.(*Stream)
	return st
}

// markReported records that a stream has reported.
func (s *slots) markReported(st *Stream) {
	if c := st.slot.client; c != nil {
		c.unreported.Remove(st.slot.element)
		st.slot.element = c.reported.PushBack(st)
	}
}

// release frees the slot of a stream, if it has one.
func (s *slots) release(st *Stream) {
	c := st.slot.client
	if c == nil {
		return
	}
	c.unreported.Remove(st.slot.element) // no effect if it is in the other list
	c.reported.Remove(st.slot.element)
	st.slot = slot{}
	s.used--
	if c.streams() == 0 {
		s.byStreams.Remove(c.index)
		delete(s.clients, c.id)
		return
	}
	s.byStreams.Fix(c.index)
}
