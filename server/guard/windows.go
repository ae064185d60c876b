package guard

import (
	"encoding/binary"
	"slices"
)

// firstWindow is what a client may send on a stream before its turn comes, in
// bytes. Ordinary requests have some 200, and grpc-go's buffers just this.
const firstWindow = 4 << 10

// turnsAtOnce is how many streams of one connection have their turn at once.
const turnsAtOnce = 4

// largeIncrement tells the WINDOW_UPDATE that lets in a message of more than the
// window that grpc-go gives a stream at first. Other updates of a stream follow
// what was read, a DATA frame of at most 16 KiB and what was short of it before.
const largeIncrement = 32 << 10

// windows has the large requests of one connection wait for each other. Without it,
// a thousand calls on one connection, each with a request of --max-message, would all
// be held in part at the same time: an end client of an Envoy can cause that.
//
// A client is told a smaller first window than grpc-go has in mind; see
// narrowFirstWindow. What is missing is added when the stream's turn comes, so that
// client and server agree again. A request that fits the first window never waits.
type windows struct {
	missing uint32              // of each stream's window, until its turn comes; 0 if nothing is
	open    map[uint32]struct{} // streams whose turn it is
	waiting []update            // the next ones, in the order in which they asked
}

// update is a WINDOW_UPDATE that was not sent yet.
type update struct{ stream, increment uint32 }

// ask reports whether an update of a stream may be sent at once. If not, it waits.
func (w *windows) ask(stream, increment uint32) bool {
	if _, ok := w.open[stream]; ok {
		return true
	}
	for i := range w.waiting {
		if w.waiting[i].stream == stream {
			w.waiting[i].increment += increment
			return false
		}
	}
	w.waiting = append(w.waiting, update{stream, increment})
	return false
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
func (w *windows) ready() bool { return len(w.waiting) > 0 && len(w.open) < turnsAtOnce }

// appendReady appends the frames of the updates that may be sent, and tells began of
// each stream whose turn begins.
func (w *windows) appendReady(b []byte, began func(stream uint32)) []byte {
	for w.ready() {
		u := w.waiting[0]
		w.waiting = slices.Delete(w.waiting, 0, 1)
		if w.open == nil {
			w.open = make(map[uint32]struct{}, turnsAtOnce)
		}
		w.open[u.stream] = struct{}{}
		began(u.stream)
		b = append(b, 0, 0, codeBytes, frameWindowUpdate, 0)
		b = binary.BigEndian.AppendUint32(b, u.stream)
		b = binary.BigEndian.AppendUint32(b, u.increment)
	}
	return b
}

// narrowFirstWindow lowers SETTINGS_INITIAL_WINDOW_SIZE in the payload of a SETTINGS
// frame, and returns by how much, 0 if it is not there. grpc-go itself takes no
// smaller one than 64 KiB.
func narrowFirstWindow(payload []byte) uint32 {
	const setting, initialWindowSize = 6, 4
	for ; len(payload) >= setting; payload = payload[setting:] {
		if binary.BigEndian.Uint16(payload) != initialWindowSize {
			continue
		}
		was := binary.BigEndian.Uint32(payload[2:])
		if was <= firstWindow {
			return 0
		}
		binary.BigEndian.PutUint32(payload[2:], firstWindow)
		return was - firstWindow
	}
	return 0
}
