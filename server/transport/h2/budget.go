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
	oddActsAtOnce    = 1000
	oddActsPerSecond = 33
	oddActsPerCall   = 4
	oddActsPerAnswer = 10
)

// smallFrame is the size below which a DATA or CONTINUATION frame that ends nothing is an odd act:
// each takes more work than it brings.
const smallFrame = 1024

// mostUnaware is how many streams a client may open in vain before it has acknowledged our SETTINGS,
// and so knows how many it may open. An Envoy older than 1.36 opens thousands if so many calls wait
// when a connection begins.
const mostUnaware = 10_000

// budget is how many odd acts a connection has left.
type budget struct {
	left     int
	refilled time.Duration // when time last gave credit
	unaware  int
	begun    uint64 // streams
	resets   uint64 // of the client
}

func (b *budget) give(n int) { b.left = min(oddActsAtOnce, b.left+n) }

// refuse counts a call for which there is no room.
func (b *budget) refuse(aware bool) {
	if aware || b.unaware == 0 {
		b.left -= 1 + oddActsPerCall
	} else {
		b.unaware--
	}
}

// exceeded reports whether more was spent than there was.
func (b *budget) exceeded(now time.Duration) bool {
	if b.left >= 0 {
		return false
	}
	if more := int((now - b.refilled).Seconds() * oddActsPerSecond); more > 0 {
		b.refilled = now
		b.give(more)
	}
	return b.left < 0
}
