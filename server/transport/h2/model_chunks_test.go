package h2

import (
	"bytes"
	"encoding/binary"
)

// modelChunkedCall is a ChunkedCall with marks.
type modelChunkedCall struct {
	*modelStreamingCall

	message []byte // the received part of an incomplete message
	newest  uint32 // mark
	waits   bool   // its PING was not sent
	out     [][8]byte
	// acked is the mark that the client is acknowledging, if acking is set.
	acked  uint32
	acking bool
}

// Receive is never called.
func (p *modelChunkedCall) Receive(message []byte) {
	p.m.t.Fatalf("stream %d: a complete message of %d bytes", p.id, len(message))
}

func (p *modelChunkedCall) ReceiveChunk(b []byte, remaining int) {
	if p.ended || p.finished || remaining < 0 {
		p.m.t.Fatalf("stream %d: an unexpected chunk, before %d bytes: %+v", p.id, remaining, p.modelStreamingCall)
	}
	p.message = append(p.message, b...)
	if !p.m.changed && (p.received == len(p.s.messages) || len(p.message)+remaining != len(p.s.messages[p.received]) ||
		!bytes.HasPrefix(p.s.messages[p.received], p.message)) {
		p.m.t.Fatalf("stream %d: of message %d have come %d bytes, %d remaining", p.id, p.received, len(p.message), remaining)
	}
	if remaining == 0 {
		p.received++
		p.message = nil
	}
}

func (p *modelChunkedCall) RequestEnded(s Status) {
	if !p.m.changed && len(p.message) > 0 {
		p.m.t.Fatalf("stream %d ends within a message", p.id)
	}
	p.modelStreamingCall.RequestEnded(s)
}

// MarkAcknowledged checks the acknowledged mark.
func (p *modelChunkedCall) MarkAcknowledged(mark uint32) {
	if !p.m.changed && (!p.acking || mark != p.acked) || p.finished {
		p.m.t.Fatalf("stream %d: mark %d was acknowledged, want %d: %v", p.id, mark, p.acked, p.acking)
	}
	p.acking = false
}

// mark marks everything that was sent so far.
func (p *modelChunkedCall) mark() {
	p.newest++
	p.waits = true
	id, mark := p.id, p.newest
	p.m.perform(func(c *client) { c.out = c.conn.Mark(c.out, id, mark) })
}

// receivePing checks a PING of the server.
func (m *model) receivePing(f *frame) {
	if f.has(flagAck) || f.payload[0] != markPing {
		return
	}
	s := m.streams[binary.BigEndian.Uint32(f.payload[4:])]
	if s == nil || s.streaming == nil || s.streaming.pieces == nil {
		m.t.Fatalf("a mark of nothing: %q", f.payload)
	}
	p := s.streaming.pieces
	if mark := binary.BigEndian.Uint32(f.payload) & (1<<24 - 1); !p.waits || mark != p.newest || p.reported != p.sent || s.answered+s.resets > 0 {
		m.t.Fatalf("stream %d: mark %d was sent after %d of %d bytes; the newest is %d, pending: %v", p.id, mark, p.reported, p.sent, p.newest, p.waits)
	}
	p.waits = false
	p.out = append(p.out, [8]byte(f.payload))
}

// acknowledge has the client acknowledge a mark, of a call that may have ended.
func (m *model) acknowledge() {
	var all []*modelChunkedCall
	for id := uint32(1); id <= m.last; id += 2 {
		if s := m.streams[id]; s != nil && s.streaming != nil && s.streaming.pieces != nil && len(s.streaming.pieces.out) > 0 {
			all = append(all, s.streaming.pieces)
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
		m.t.Fatalf("the acknowledgement of mark %[2]d was not reported to stream %[1]d", p.id, p.acked)
	}
	p.acking = false
}
