package h2

import "time"

// A connection has a budget of glitches: frames that are valid but useless, and streams that had to
// be reset because of the client. The budget is refilled by time, by each new call, and by each
// answer. nghttp2 uses the same maximum and refill per second for resets. Envoy compares the number
// of frames of a kind with that of opened streams.
//
// A call adds to the budget when it begins, not only when it is answered: gRPC's C core, which
// Python, C++, Ruby and PHP use, sends two WINDOW_UPDATEs with every call, so a burst of 500 calls
// would otherwise close the connection.
//
// The client's resets are not glitches, up to one per stream: if a service stalls for a moment,
// Envoy resets every call.
const (
	maxGlitches       = 1000
	glitchesPerSecond = 33
	glitchesPerCall   = 4
	glitchesPerAnswer = 10
)

// smallFrame is the size below which a DATA frame without END_STREAM, or a CONTINUATION frame
// without END_HEADERS, is a glitch: it costs more work than its content is worth.
const smallFrame = 1024

// maxFreeRefusals is the number of refused streams that are not glitches, because the client has
// not yet acknowledged our SETTINGS, which limit the number of streams. Envoy before 1.36 opens
// thousands if as many calls wait for a new connection.
const maxFreeRefusals = 10_000

// glitchBudget counts the glitches that a connection may still cause.
type glitchBudget struct {
	left         int
	refilled     time.Duration // last refill by time
	freeRefusals int
	opened       uint64 // number of opened streams
	resets       uint64 // number of the client's resets
}

func (b *glitchBudget) add(n int) { b.left = min(maxGlitches, b.left+n) }

// chargeRefusal charges a refused call. aware is true if the client has acknowledged our SETTINGS.
func (b *glitchBudget) chargeRefusal(aware bool) {
	if aware || b.freeRefusals == 0 {
		b.left -= 1 + glitchesPerCall
	} else {
		b.freeRefusals--
	}
}

// exceeded reports whether the budget is exhausted, after refilling it.
func (b *glitchBudget) exceeded(now time.Duration) bool {
	if b.left >= 0 {
		return false
	}
	if more := int((now - b.refilled).Seconds() * glitchesPerSecond); more > 0 {
		b.refilled = now
		b.add(more)
	}
	return b.left < 0
}
