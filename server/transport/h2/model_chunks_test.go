package h2

import (
	"bytes"
	"encoding/binary"
)

// modelPieces is a handler of a conversation whose messages come in pieces, and which is marked.
type modelPieces struct {
	*modelTalk

	message []byte // what has come of one that is not whole
	newest  uint32 // mark
	waits   bool   // its PING is not out
	out     [][8]byte
	// acked is the mark that the client is acknowledging, if acking.
	acked  uint32
	acking bool
}

// Receive is never called.
func (p *modelPieces) Receive(message []byte, _ bool) {
	p.m.t.Fatalf("stream %d: a message of %d bytes comes at once", p.id, len(message))
}

func (p *modelPieces) ReceiveChunk(b []byte, follow int) {
	if p.heard || p.finished || follow < 0 {
		p.m.t.Fatalf("stream %d: a piece that nobody wants, before %d bytes: %+v", p.id, follow, p.modelTalk)
	}
	p.message = append(p.message, b...)
	if !p.m.changed && (p.received == len(p.s.messages) || len(p.message)+follow != len(p.s.messages[p.received]) ||
		!bytes.HasPrefix(p.s.messages[p.received], p.message)) {
		p.m.t.Fatalf("stream %d: of message %d have come %d bytes, %d follow", p.id, p.received, len(p.message), follow)
	}
	if follow == 0 {
		p.received++
		p.message = nil
	}
}

func (p *modelPieces) RequestEnded(s Status) {
	if !p.m.changed && len(p.message) > 0 {
		p.m.t.Fatalf("stream %d ends within a message", p.id)
	}
	p.modelTalk.RequestEnded(s)
}

// MarkAcknowledged takes in what the connection says of an acknowledgement.
func (p *modelPieces) MarkAcknowledged(mark uint32) {
	if !p.m.changed && (!p.acking || mark != p.acked) || p.finished {
		p.m.t.Fatalf("stream %d: mark %d is told as acknowledged, want %d: %v", p.id, mark, p.acked, p.acking)
	}
	p.acking = false
}

// mark has the connection mark what was sent so far.
func (p *modelPieces) mark() {
	p.newest++
	p.waits = true
	id, mark := p.id, p.newest
	p.m.do(func(c *client) { c.out = c.conn.Mark(c.out, id, mark) })
}

// pinged takes in a PING of the server.
func (m *model) pinged(f *frame) {
	if f.has(flagAck) || f.payload[0] != markPing {
		return
	}
	s := m.streams[binary.BigEndian.Uint32(f.payload[4:])]
	if s == nil || s.talk == nil || s.talk.pieces == nil {
		m.t.Fatalf("a mark of nothing: %q", f.payload)
	}
	p := s.talk.pieces
	if mark := binary.BigEndian.Uint32(f.payload) & (1<<24 - 1); !p.waits || mark != p.newest || p.left != p.sent || s.answered+s.resets > 0 {
		m.t.Fatalf("stream %d: mark %d is out behind %d of %d bytes; the newest is %d, which waits: %v", p.id, mark, p.left, p.sent, p.newest, p.waits)
	}
	p.waits = false
	p.out = append(p.out, [8]byte(f.payload))
}

// acknowledge has the client acknowledge a mark, of a conversation that may be over.
func (m *model) acknowledge() {
	var all []*modelPieces
	for id := uint32(1); id <= m.last; id += 2 {
		if s := m.streams[id]; s != nil && s.talk != nil && s.talk.pieces != nil && len(s.talk.pieces.out) > 0 {
			all = append(all, s.talk.pieces)
		}
	}
	if len(all) == 0 {
		return
	}
	p := all[m.pick(len(all))]
	data := p.out[0]
	p.out = p.out[1:]
	p.acked, p.acking = binary.BigEndian.Uint32(data[:])&(1<<24-1), true
	m.must(m.WritePing(true, data))
	m.frame()
	if p.acking && p.open() && !m.changed && m.err == nil {
		m.t.Fatalf("stream %d is not told that mark %d is acknowledged", p.id, p.acked)
	}
	p.acking = false
}
