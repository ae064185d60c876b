package guard

import (
	"encoding/binary"
	"slices"
)

// firstWindow is what a client may send on a stream before its turn comes, in bytes. Ordinary
// requests have about 200. It is one of the sizes of grpc-go's buffers.
const firstWindow = 4 << 10

// turnsAtOnce is how many streams of one connection have their turn at once.
const turnsAtOnce = 4

// A WINDOW_UPDATE of more than largeIncrement lets in a message that is larger than grpc-go's
// first window of a stream. Other updates follow what was read: a DATA frame of at most 16 KiB,
// and less than that from before.
const largeIncrement = 32 << 10

// windows lets the large requests of one connection take turns. Without it, a thousand calls on
// one connection, each with a request of --max-message, would all be held in part at the same
// time. An end client of an Envoy can cause that.
//
// The client is told a smaller first window than grpc-go uses; see narrowFirstWindow. The missing
// part is added when the stream's turn comes, so that client and server agree again. A request
// that fits the first window never waits.
type windows struct {
	missing uint32              // part of each window that waits for the turn; 0: nothing was narrowed
	open    map[uint32]struct{} // streams whose turn it is
	waiting []update            // those of the next streams, in the order in which they asked
}

// update is a WINDOW_UPDATE that was not sent yet.
type update struct{ stream, increment uint32 }

// ask reports whether an update of a stream may be sent at once. If not, w keeps it.
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

// done removes a stream whose request has ended, and frees its turn.
func (w *windows) done(stream uint32) {
	if len(w.open) == 0 && len(w.waiting) == 0 {
		return
	}
	delete(w.open, stream)
	w.waiting = slices.DeleteFunc(w.waiting, func(u update) bool { return u.stream == stream })
}

// read frees the turn of a stream of which a message was read. An update of it that waits is still sent.
func (w *windows) read(stream uint32) { delete(w.open, stream) }

// ready reports whether a waiting update may be sent.
func (w *windows) ready() bool { return len(w.waiting) > 0 && len(w.open) < turnsAtOnce }

// appendReady appends the frames of the updates that may be sent. It calls began with each
// stream whose turn begins. The turn ends at once if the update is the missing part of the first window,
// and began reports that what has come was read meanwhile.
func (w *windows) appendReady(b []byte, began func(stream uint32) (holds bool)) []byte {
	for w.ready() {
		u := w.waiting[0]
		w.waiting = slices.Delete(w.waiting, 0, 1)
		if w.open == nil {
			w.open = make(map[uint32]struct{}, turnsAtOnce)
		}
		if began(u.stream) || u.increment != w.missing {
			w.open[u.stream] = struct{}{}
		}
		b = append(b, 0, 0, codeBytes, frameWindowUpdate, 0)
		b = binary.BigEndian.AppendUint32(b, u.stream)
		b = binary.BigEndian.AppendUint32(b, u.increment)
	}
	return b
}

// narrowFirstWindow lowers SETTINGS_INITIAL_WINDOW_SIZE in the payload of a SETTINGS frame to
// firstWindow, and returns by how much. It returns 0 if the setting is not there or is smaller.
// grpc-go itself accepts no window below 64 KiB.
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
