package guard

import "time"

// A connection has a budget of odd acts. Time, each call begun and each call answered refill it.
// nghttp2 has the same first two numbers for resets. Envoy counts the frames of a kind against
// the streams opened.
//
// A call gives credit when it begins, not only when it is answered. gRPC's C core, under Python,
// C++, Ruby and PHP, sends two WINDOW_UPDATEs with every call, so a burst of 500 calls would
// otherwise close the connection.
const (
	oddActsAtOnce    = 1000
	oddActsPerSecond = 33
	oddActsPerCall   = 4
	oddActsPerAnswer = 10
)

// smallFrame is the size below which a DATA or CONTINUATION frame that ends nothing is an odd
// act: each takes more memory than it brings.
const smallFrame = 1024

// budget is how many odd acts a connection has left.
type budget struct {
	left     int
	refilled time.Time // when time last gave credit
}

func newBudget(now time.Time) budget { return budget{left: oddActsAtOnce, refilled: now} }

func (b *budget) spend(n int) { b.left -= n }

func (b *budget) give(n int) { b.left = min(oddActsAtOnce, b.left+n) }

// spent reports whether more was spent than there was. It reads the time only if so.
func (b *budget) spent(now func() time.Time) bool {
	if b.left >= 0 {
		return false
	}
	t := now()
	if more := int(t.Sub(b.refilled).Seconds() * oddActsPerSecond); more > 0 {
		b.refilled = t
		b.give(more)
	}
	return b.left < 0
}
