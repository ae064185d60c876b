package h2

import "time"

// A connection has a budget of odd acts: frames that ask for nothing, and streams that were reset by
// the client's fault. Time, each call begun and each call answered refill it. nghttp2 has the same
// first two numbers for resets. Envoy counts the frames of a kind against the streams opened.
//
// A call gives credit when it begins, not only when it is answered. gRPC's C core, under Python,
// C++, Ruby and PHP, sends two WINDOW_UPDATEs with every call, so a burst of 500 calls would
// otherwise end the connection.
//
// A client's own resets are no odd acts, up to one for each stream: a service that stalls for a moment
// gets one from Envoy for every call.
const (
	maxGlitches       = 1000
	glitchesPerSecond = 33
	glitchesPerCall   = 4
	glitchesPerAnswer = 10
)

// smallFrame is the size below which a DATA or CONTINUATION frame that ends nothing is an odd act:
// each takes more work than it brings.
const smallFrame = 1024

// maxFreeRefusals is how many streams a client may open in vain before it has acknowledged our SETTINGS,
// and so knows how many it may open. An Envoy older than 1.36 opens thousands if so many calls wait
// when a connection begins.
const maxFreeRefusals = 10_000

// glitchBudget is how many odd acts a connection has left.
type glitchBudget struct {
	left         int
	refilled     time.Duration // when time last gave credit
	freeRefusals int
	opened       uint64 // streams
	resets       uint64 // of the client
}

func (b *glitchBudget) add(n int) { b.left = min(maxGlitches, b.left+n) }

// chargeRefusal counts a call for which there is no room.
func (b *glitchBudget) chargeRefusal(aware bool) {
	if aware || b.freeRefusals == 0 {
		b.left -= 1 + glitchesPerCall
	} else {
		b.freeRefusals--
	}
}

// exceeded reports whether more was spent than there was.
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
