package guard

import (
	"encoding/binary"
	"slices"
)

// largeAtOnce is how many large messages one connection may send at once.
const largeAtOnce = 4

// largeIncrement tells the WINDOW_UPDATE that lets a large message in from others.
// grpc-go gives a stream 64 KiB at first; a message that is longer gets its whole
// length at once, before the rest of it has come. Other updates of a stream follow
// what was read, a DATA frame of at most 16 KiB and what was short of it before.
const largeIncrement = 32 << 10

// windows has large messages of one connection wait for each other. Without it,
// a thousand calls on one connection, each with a message of --max-message, would
// all be held in part at the same time.
//
// A message that fits the first window never waits.
type windows struct {
	open    map[uint32]struct{} // streams that may send a large message
	waiting []update            // the next ones, in the order in which they asked
}

// update is a WINDOW_UPDATE of the server that was not sent yet.
type update struct{ stream, increment uint32 }

// ask reports whether a stream's update may be sent. If not, it waits.
func (w *windows) ask(stream, increment uint32) bool {
	if _, ok := w.open[stream]; ok {
		return true
	}
	if len(w.open) == largeAtOnce {
		w.waiting = append(w.waiting, update{stream, increment})
		return false
	}
	if w.open == nil {
		w.open = make(map[uint32]struct{}, largeAtOnce)
	}
	w.open[stream] = struct{}{}
	return true
}

// done takes a stream out whose request has ended.
func (w *windows) done(stream uint32) {
	if len(w.open) == 0 && len(w.waiting) == 0 {
		return
	}
	delete(w.open, stream)
	w.waiting = slices.DeleteFunc(w.waiting, func(u update) bool { return u.stream == stream })
}

// ready reports whether an update that waits may be sent.
func (w *windows) ready() bool { return len(w.waiting) > 0 && len(w.open) < largeAtOnce }

// appendReady appends the frames of the updates that may be sent.
func (w *windows) appendReady(b []byte) []byte {
	for w.ready() {
		u := w.waiting[0]
		w.waiting = slices.Delete(w.waiting, 0, 1)
		w.open[u.stream] = struct{}{}
		b = append(b, 0, 0, codeBytes, frameWindowUpdate, 0)
		b = binary.BigEndian.AppendUint32(b, u.stream)
		b = binary.BigEndian.AppendUint32(b, u.increment)
	}
	return b
}
